// State: a sandboxed Lua state with Strata's library in it. The launcher, the prompt and the engine
// use it to run scripts. This header includes neither Lua nor torch.
//
// Scripts see base, coroutine, string, table, math, bit, `require` for files beside the script, and
// strata. They do not see ffi, os, io, debug, jit or bytecode. Memory and the time before training
// are limited (Limits). math.random is our own, so that every rank draws the same numbers.
//
// The JIT is off, because loops that it has compiled do not look at hooks. A hook is how a script
// is ended between two instructions: at the end of its time, and by Interrupt(). Scripts lose
// little by that, since the tensors' operators take nearly all of the time.
//
// Threads: any thread may call any method. One runs at a time, the others wait; a thread that
// trains from within a script lets the others in (Unlocked, core.h). Interrupt() never waits.
//
// Errors: every error of a script arrives as ConfigError, with the script's file and line and
// without C++ text. A failure of the environment while the script trains arrives as WorldError.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/job/flags/flags.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"

struct lua_State;

namespace strata::lua {

/// The default of StateOptions::seconds; few scripts come near it.
inline constexpr double kScriptSeconds = 20;

/// The limits of a script, its permissions, and the target of its output.
struct StateOptions {
  /// Bytes that the state may hold, without tensors.
  size_t memory_limit = size_t{1} << 30;
  /// Seconds of processor time that one call from outside (LoadJob, RunFile, a function for
  /// planning) may take. The layers and data functions of a training have no such limit, nor has a
  /// script once it trains itself. 0 = no limit at all, as at the prompt.
  double seconds = kScriptSeconds;
  /// Files and folders that scripts may read in addition to their own (file_access.h). LoadJob adds
  /// the paths that the command line names.
  std::vector<std::string> allow_read;
  /// Receives what print() writes, newline included. If empty, print() writes to standard output.
  std::function<void(std::string_view)> print;
  /// The content of the global `arg` (strata run); the script is arg[0].
  std::vector<std::string> arguments;
};

/// The result of a line at the prompt.
struct Evaluation {
  /// True if the text is only the beginning of a statement: ask for another line and evaluate both.
  bool incomplete = false;
  /// The printed values of an expression, or the requested help, without a trailing newline. "" if
  /// there are none, or if a semicolon ends the line.
  std::string shown;
};

/// The candidates for completing the word before the cursor.
struct Completion {
  size_t start = 0;                     ///< position where the word to be replaced begins
  std::vector<std::string> candidates;  ///< whole words, sorted: "Conv1d", "Conv2d"
};

class State {
 public:
  explicit State(StateOptions options = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Evaluates a script that returns a job, with the flags after its name: strata.options takes the
  /// script's own options, and job keys override the script's. Checks that no flag is left. `job`
  /// becomes a global of the prompt. Throws ConfigError also if the script returns something else
  /// or cannot be read. It may be called again, also for another script: functions of earlier jobs
  /// stay alive as long as the state.
  Job LoadJob(const std::string& path, Flags& flags);

  /// Runs any Lua file (strata run). The global `arg` holds StateOptions::arguments.
  void RunFile(const std::string& path);

  /// Runs a line of the prompt: an expression (`=` may precede it, as in Torch7), statements, or
  /// `EXPRESSION?` for help. The library's parts (`strata`, `nn`, `F`, `help`) are globals there,
  /// and so are variables that lines set; `_` is the last expression's first value.
  Evaluation Evaluate(const std::string& text);

  /// Completes `line`, which may contain newlines: globals, fields and methods of values
  /// ("plan.la", "t:fi"), options of a called function ("nn.Conv2d{3, 64, ker"), keys of a job and
  /// of its tables, keywords; within a string the names that fit there, or else files. It runs no
  /// user code.
  Completion Complete(std::string_view line);

  /// Makes the running script end with the error "interrupted" at its next instruction; a training
  /// within it ends too. It only sets a flag, so signal handlers and any thread may call it. The
  /// next call from outside clears the flag. Returns false if the running call was already
  /// interrupted: it may be in a search for a pattern, say, which only the end of the process
  /// stops.
  bool Interrupt();

  /// The script's functions, for MakePlan() and others. Lives as long as the state.
  Script& script();

  /// The state that a lua_State belongs to.
  static State& Of(lua_State* L);

  /// The implementation's data, for lua/ only (core.h).
  struct Core;
  Core& core() { return *core_; }

 private:
  std::unique_ptr<Core> core_;
};

}  // namespace strata::lua
