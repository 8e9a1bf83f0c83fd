// State: a sandboxed Lua state with Strata's library in it. What the launcher, the prompt and the
// engine hold when they hold a script. This header includes neither Lua nor torch.
//
// Scripts see base, coroutine, string, table, math, bit, `require` for files beside the script, and
// strata. They do not see ffi, os, io, debug, jit or bytecode; the JIT is off. Memory and the time
// before training are limited (Limits). math.random is our own, so that every rank draws the same
// numbers.
//
// Threads: any thread may call any method. One runs at a time, the others wait; a thread that
// trains from within a script lets the others in (Unlocked, core.h). Interrupt() never waits.
//
// Errors: everything that goes wrong in a script arrives as ConfigError (WorldError where the world
// failed while the script trained), with the script's file and line and without C++ text.
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

/// The default of StateOptions::seconds, which few scripts come near.
inline constexpr double kScriptSeconds = 20;

/// What a script may use up, and where its words go.
struct StateOptions {
  /// Bytes that the state may hold, tensors not counted.
  size_t memory_limit = size_t{1} << 30;
  /// Seconds on a processor that one call from outside (LoadJob, RunFile, a function for planning)
  /// may take. None for the layers and data functions of a training, nor once a script itself
  /// trains. 0 = none at all, as at the prompt.
  double seconds = kScriptSeconds;
  /// Files and folders that scripts may read beside their own (file_access.h). LoadJob adds what
  /// the command line names.
  std::vector<std::string> allow_read;
  /// Takes what print() writes, newline included. Empty: standard output.
  std::function<void(std::string_view)> print;
  /// What `arg` holds (strata run): the script is arg[0].
  std::vector<std::string> arguments;
};

/// What became of a line at the prompt.
struct Evaluation {
  /// The text is the beginning of something longer: ask for another line, evaluate both.
  bool incomplete = false;
  /// The values of an expression, or the help that was asked for, without a trailing newline; ""
  /// where there are none, and where a semicolon ends the line.
  std::string shown;
};

/// Ways to go on from what stands before the cursor.
struct Completion {
  size_t start = 0;                     ///< the word to be replaced begins here
  std::vector<std::string> candidates;  ///< whole words, sorted: "Conv1d", "Conv2d"
};

class State {
 public:
  explicit State(StateOptions options = {});
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  /// Evaluates a script that returns a job, with the flags behind it: strata.options takes the
  /// script's own, job keys hold over the script's; checks that none is left. `job` becomes a
  /// global of the prompt. Throws ConfigError also for a script that returns something else, or
  /// cannot be read. May be called again, also for another script: functions of earlier jobs stay
  /// alive as long as the state.
  Job LoadJob(const std::string& path, Flags& flags);

  /// Runs any Lua file (strata run). `arg` holds StateOptions::arguments.
  void RunFile(const std::string& path);

  /// Runs a line of the prompt: an expression (`=` may stand before it, as in Torch7), statements,
  /// or `EXPRESSION?` for help. The library's parts (`strata`, `nn`, `F`, `help`) are globals
  /// there, so are those that the lines make; `_` is the last expression's first value.
  Evaluation Evaluate(const std::string& text);

  /// What may follow in `line`, which may hold newlines: globals, fields and methods of values
  /// ("plan.la", "t:fi"), options of what is called ("nn.Conv2d{3, 64, ker"), keys of a job and of
  /// its tables, keywords; in strings the names that fit there, else files. Runs nothing of the
  /// user's.
  Completion Complete(std::string_view line);

  /// Makes the running script end with the error "interrupted" at its next instruction; training
  /// from within it ends too. Only sets a flag: for signal handlers and any thread. A later call
  /// from outside starts anew. False when the script that runs was told before: it is in a search
  /// for a pattern, say, and only the end of the process ends that.
  bool Interrupt();

  /// The script's functions, for MakePlan() and others. Lives as long as the state.
  Script& script();

  /// The state that a lua_State belongs to.
  static State& Of(lua_State* L);

  /// The parts of the implementation, for lua/ only (core.h).
  struct Core;
  Core& core() { return *core_; }

 private:
  std::unique_ptr<Core> core_;
};

}  // namespace strata::lua
