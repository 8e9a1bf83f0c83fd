// State::Core, the data of a State; and Session, through which all calls enter Lua. Internal to
// lua/.
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

/// The name of a chunk of ours: Lua that is a part of the library. Its lines are nobody's place.
inline constexpr char kOwnChunk[] = "=strata";

/// How closely the hook follows a call.
enum class Watch {
  kClosely,  ///< before training: notes every line, for the places of errors; limits the time
  kLoosely,  ///< in training: looks for interrupts only
};

/// A loaded script, or a loaded line of the prompt. Core::chunks has it under its name in errors.
struct Chunk {
  std::string source;
  std::string folder;  ///< where its `require`, strata.load and strata.read look, links resolved
  std::string shown_folder;  ///< the same as the user wrote it; "" = the current one
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

  /// Makes the hook follow the script as `watch` says.
  void SetWatch(Watch watch);
  /// "alexnet.lua:12", the line of the script that runs now, or that called the running C
  /// function; "" when no script runs.
  std::string Place(lua_State* L);
  /// The chunk that "alexnet.lua:12" is in; null where there is none, as of a text for load().
  const Chunk* ChunkAt(const std::string& place) const;
  /// The chunk whose line runs now; the last one loaded when none runs.
  const Chunk& CallingChunk(lua_State* L);
  /// Gives up a reference into the registry, at the next call into Lua. It does not wait for the
  /// turn, so destructors may call it on any thread.
  void Forget(int reference);
  void EndForgotten(lua_State* L);

  State& owner;
  StateOptions options;
  Limits limits;
  Turn turn;

  lua_State* main = nullptr;    ///< only ever used to make and close the state
  lua_State* anchor = nullptr;  ///< makes coroutines; runs nothing
  std::vector<lua_State*> idle_coroutines;
  int open_sessions = 0;       ///< of all threads, with those that wait
  bool out_of_memory = false;  ///< collect when the call has ended
  Watch watch = Watch::kLoosely;
  int hook_interval = 0;   ///< instructions between two looks at the limits
  std::string last_place;  ///< of the line that ran last; "" unless watched closely

  std::map<std::string, Chunk> chunks;  ///< by name: "models/alexnet.lua", "prompt"
  std::string script;                   ///< the script that is, or was last, evaluated; "" = prompt
  int prompts = 0;                      ///< lines that the prompt has evaluated
  bool prompt_open = false;             ///< the prompt's globals are there
  Settings* settings = nullptr;         ///< of the script that is evaluated; null = none are set
  Random random;                        ///< behind math.random
  std::string world_error;              ///< text of the last WorldError that became a Lua error

  std::mutex forgotten_mutex;
  std::vector<int> forgotten;  ///< references to be ended

  std::unique_ptr<Script> host;     ///< what State::script() gives
  std::shared_ptr<Script> tensors;  ///< set by the engine: infers shapes with tensors
  /// Whether the layer or loss that the calling thread runs trains; the engine sets it.
  bool (*is_training)() = [] { return true; };
  /// The place in its text of the first token that such a layer sees; the engine sets it.
  int64_t (*token_position)() = [] { return int64_t{0}; };
};

/// Counts `bytes` of an object that a script made as memory of the script. If that exceeds the
/// limit, it first collects garbage, and then throws ConfigError if the limit is still exceeded.
/// Limits::GiveBack() ends the counting.
void TakeMemory(lua_State* L, size_t bytes);

/// Defines the globals strata, nn and F for the prompt. A second call does nothing.
void OpenPrompt(State::Core& core, lua_State* L);

/// While an object lives, its thread holds the turn and has a coroutine to run in. Sessions nest.
/// Inner ones, and those of other threads while the outer one is Unlocked, run under the watch of
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

/// While an object lives, other threads can run Lua. Bindings use it while they wait for the
/// engine or for other ranks. Afterwards math.random goes on as if they had not.
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

/// Sets the script and its settings for as long as it is evaluated.
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

/// Replaces the elements of the global table `arg`, from 1 on. Does nothing when the script has put
/// another value there.
void SetArguments(lua_State* L, const std::vector<std::string>& arguments);

/// Calls the function below its `arguments`, as lua_pcall does; throws what goes wrong. For the
/// body of Session::Run().
void CallProtected(lua_State* L, int arguments, int results);

/// A C function holds one of these while it runs Lua itself. It limits how deeply such functions
/// nest, so that the C stack does not overflow, and keeps the place of the calling line. Throws
/// ConfigError when they nest too deeply.
class NestedCall {
 public:
  explicit NestedCall(lua_State* L);
  ~NestedCall();

 private:
  State::Core& core_;
  std::string place_;
  int depth_;
};

/// Calls the function below its `arguments` from a C function that Lua has called, as lua_call
/// does. Errors of Lua pass through the caller, whose destructors run.
void CallNested(lua_State* L, int arguments, int results);

/// Writes to where print() writes: StateOptions::print, else standard output.
void PrintText(lua_State* L, const std::string& text);
void PrintText(const State::Core& core, const std::string& text);

/// True when a message begins with a place in a script, "alexnet.lua:12: ".
bool HasPlace(std::string_view message);

}  // namespace strata::lua
