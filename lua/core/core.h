// State::Core, the data of a State; and Session, which every call into Lua goes through. Internal
// to lua/.
#pragma once

#include <functional>
#include <lua.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lua/core/calls.h"
#include "lua/core/limits.h"
#include "lua/core/splitmix.h"
#include "lua/core/state.h"

namespace strata::lua {

/// The name of our own chunks, which are parts of the library written in Lua. Errors are never
/// placed in their lines.
inline constexpr char kOwnChunk[] = "=strata";

/// How much the hook does during a call.
enum class Watch {
  kClosely,  ///< before training: records every line, for the places of errors; limits the time
  kLoosely,  ///< in training: looks for interrupts only
};

/// A loaded script, module or line of the prompt. Core::chunks maps the name that errors show to
/// it.
struct Chunk {
  std::string source;
  std::string folder;  ///< where `require`, strata.load and strata.read look; links are resolved
  std::string shown_folder;  ///< the folder as the user wrote it; "" = the current one
};

/// The lock that a thread holds while it runs Lua. It is recursive, and its owner can release it
/// completely for a while.
class Turn {
 public:
  void Take();
  void Leave();
  /// Releases the lock completely and returns how often it was taken, for Reclaim().
  int GiveAway();
  void Reclaim(int depth);

 private:
  std::recursive_mutex mutex_;
  int depth_ = 0;
};

struct State::Core {
  Core(State& owner, StateOptions options);
  ~Core();

  /// The core that a lua_State belongs to.
  static Core& Of(lua_State* L);

  /// Sets what the hook does from now on.
  void SetWatch(Watch watch);
  /// "alexnet.lua:12", the line of the script that runs now, or that called the running C
  /// function; "" when no script runs.
  std::string Place(lua_State* L);
  /// The chunk that a place such as "alexnet.lua:12" is in; null if there is none, as for a text
  /// given to load().
  const Chunk* ChunkAt(const std::string& place) const;
  /// The chunk whose line runs now. If none runs, the script that is evaluated, or was last; else
  /// the prompt.
  const Chunk& CallingChunk(lua_State* L);
  /// Marks a registry reference as unused; the next call into Lua frees it. It does not wait for
  /// the turn, so destructors may call it on any thread.
  void Forget(int reference);
  void EndForgotten(lua_State* L);

  State& owner;
  StateOptions options;
  Limits limits;
  Turn turn;

  lua_State* main = nullptr;    ///< only ever used to make and close the state
  lua_State* anchor = nullptr;  ///< makes coroutines; runs nothing
  std::vector<lua_State*> idle_coroutines;
  int open_sessions = 0;       ///< of all threads, including those that wait for the turn
  bool out_of_memory = false;  ///< collect garbage when the call has ended
  Watch watch = Watch::kLoosely;
  int hook_interval = 0;   ///< instructions between two looks at the limits
  std::string last_place;  ///< the line that ran last; "" unless watched closely

  std::map<std::string, Chunk> chunks;  ///< by name: "models/alexnet.lua", "prompt"
  std::string script;            ///< the script that is, or was last, evaluated; "" = the prompt
  int prompts = 0;               ///< number of lines that the prompt has evaluated
  bool prompt_open = false;      ///< true once OpenPrompt() has defined the prompt's globals
  Settings* settings = nullptr;  ///< settings of the script being evaluated; null = none are set
  Random random;                 ///< the generator behind math.random
  std::string world_error;       ///< text of the last WorldError that became a Lua error

  std::mutex forgotten_mutex;
  std::vector<int> forgotten;  ///< references to be freed

  std::unique_ptr<Script> host;     ///< the result of State::script()
  std::shared_ptr<Script> tensors;  ///< set by the engine; infers shapes with tensors
  /// True if the calling thread runs a layer or loss in training, not in evaluation; the engine
  /// sets it.
  bool (*is_training)() = [] { return true; };
  /// The position, within its text, of the first token that the running layer sees; the engine sets
  /// it.
  int64_t (*token_position)() = [] { return int64_t{0}; };
};

/// Charges `bytes` of an object made by a script to the script's memory limit. If that exceeds the
/// limit, garbage is collected first; if it is still exceeded, it throws ConfigError.
/// Limits::GiveBack() ends the charge.
void TakeMemory(lua_State* L, size_t bytes);

/// Defines the globals strata, nn and F for the prompt. A second call does nothing.
void OpenPrompt(State::Core& core, lua_State* L);

/// While an object lives, its thread holds the turn and has a coroutine to run in. Sessions nest.
/// Inner sessions, and those of other threads while the outer one is Unlocked, keep the Watch of
/// the outermost one.
class Session {
 public:
  explicit Session(State& state, Watch watch = Watch::kClosely);
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  /// Runs `body` in Lua's protected mode, on an empty stack that is dropped afterwards. Errors of
  /// Lua and of C++ are thrown as ConfigError or WorldError.
  void Run(const std::function<void(lua_State*)>& body);

 private:
  State::Core& core_;
};

/// While an object lives, other threads can run Lua. Bindings use it while they wait for the engine
/// or for other ranks. Afterwards the state of math.random is restored, so calls on other threads
/// do not change its numbers.
/// REQUIRES: the calling thread has the turn.
class Unlocked {
 public:
  explicit Unlocked(State& state);
  ~Unlocked();

 private:
  State::Core& core_;
  const OutsideScript inside_{nullptr};  // others change the script's state
  Watch watch_;
  std::string place_;
  Random random_;
  int depth_;
};

/// Sets the script that is being evaluated, and its settings, for the object's lifetime.
class Evaluating {
 public:
  Evaluating(State::Core& core, const std::string& script, Settings* settings);
  ~Evaluating();
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  State::Core& core_;
  std::string script_;
  Settings* settings_;
};

/// Replaces the elements of the global table `arg`, from 1 on. Does nothing if the script has
/// replaced `arg` by another value.
void SetArguments(lua_State* L, const std::vector<std::string>& arguments);

/// Calls the function below its `arguments` as lua_pcall does, and throws its error. For use in the
/// body of Session::Run().
void CallProtected(lua_State* L, int arguments, int results);

/// Held by a C function while it calls Lua itself. It limits how deeply such functions nest, so
/// that the C stack does not overflow, and restores the place of the calling line afterwards.
/// Throws ConfigError if they nest too deeply.
class NestedCall {
 public:
  explicit NestedCall(lua_State* L);
  ~NestedCall();

 private:
  State::Core& core_;
  std::string place_;
  int depth_;
};

/// Calls the function below its `arguments`, as lua_call does, from a C function called by Lua. Lua
/// errors pass through the caller, whose destructors run.
void CallNested(lua_State* L, int arguments, int results);

/// Writes text to where print() writes: StateOptions::print, or else standard output.
void PrintText(lua_State* L, const std::string& text);
void PrintText(const State::Core& core, const std::string& text);

/// True if a message begins with a place in a script, "alexnet.lua:12: ".
bool HasPlace(std::string_view message);

}  // namespace strata::lua
