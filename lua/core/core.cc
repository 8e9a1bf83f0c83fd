// The data of a state, its hook, its conversion of errors, and its turn among threads.
#include "lua/core/core.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/calls.h"
#include "lua/core/chunk.h"
#include "lua/core/convert.h"
#include "lua/core/globals.h"

namespace strata::lua {
namespace {

/// Instructions between two checks of the limits: about 0.1 ms.
constexpr int kHookInterval = 10000;
/// The largest nesting of C functions of ours that call Lua; each level takes a few KB of stack.
constexpr int kMaxCCalls = 180;
/// The number of C functions of ours on this thread's stack that are calling Lua. It is per thread:
/// while this thread gives the turn away, other threads nest on their own stacks.
thread_local int c_calls = 0;

/// Extra memory, in bytes, that the garbage collector may use after the limit was reached.
constexpr size_t kReserve = size_t{1} << 20;

void* Allocate(void* core, void* block, size_t old_size, size_t new_size) {
  return static_cast<State::Core*>(core)->limits.Reallocate(block, old_size, new_size);
}

std::string SourceName(const lua_Debug& info) {
  return info.source[0] == '@' ? info.source + 1 : info.short_src;
}

std::string PlaceOf(const lua_Debug& info) { return Str(SourceName(info), ":", info.currentline); }

bool IsOwn(const lua_Debug& info) { return std::strcmp(info.source, kOwnChunk) == 0; }

/// Lua calls it for new lines and every hook_interval instructions. Once a script must stop, the
/// hook is called at every instruction, so that no pcall() lets the script go on.
void Hook(lua_State* L, lua_Debug* event) {
  State::Core& core = State::Core::Of(L);
  AnswerCalls(L);
  lua_getinfo(L, "Sl", event);
  if (event->event == LUA_HOOKLINE) {
    if (!IsOwn(*event)) core.last_place = PlaceOf(*event);
    if (!core.limits.overdue()) return;
  }
  const std::string reason = core.limits.Reason();
  if (reason.empty()) return;
  core.hook_interval = 1;
  core.SetWatch(core.watch);
  PushText(L, Str(IsOwn(*event) ? core.Place(L) : PlaceOf(*event), ": ", reason));
  lua_error(L);
}

/// The text of an error value: strings as they are, other values by their description.
std::string ErrorText(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TSTRING) return std::string(TextAt(L, index));
  return Str("the script raised ", Describe(L, index), " as an error");
}

/// The message handler of protected calls. It adds the place to the message while the stack still
/// shows it.
int AddPlace(lua_State* L) {
  std::string text = ErrorText(L, 1);
  text += ComparisonHint(text);
  if (!HasPlace(text)) {
    const std::string place = State::Core::Of(L).Place(L);
    if (!place.empty()) text = PlaceOfKey(State::Core::Of(L), place, text) + ": " + text;
  }
  PushText(L, text);
  return 1;
}

std::string OutOfMemory(State::Core& core) {
  core.out_of_memory = true;
  return Str("the script needs more than ",
             FormatBytes(static_cast<double>(core.limits.memory_limit())), " of memory");
}

/// Throws the error at the top of the stack with the type that it had before it became a Lua error.
[[noreturn]] void ThrowLuaError(lua_State* L, int status) {
  State::Core& core = State::Core::Of(L);
  std::string text;
  if (status == LUA_ERRMEM) {
    text = OutOfMemory(core);
  } else {
    text = ErrorText(L, -1);
  }
  if (!HasPlace(text) && !core.last_place.empty()) {
    text = PlaceOfKey(core, core.last_place, text) + ": " + text;
  }
  if (!core.world_error.empty() && text.ends_with(core.world_error)) throw WorldError(text);
  throw ConfigError(text);
}

int Collect(lua_State* L) {
  lua_gc(L, LUA_GCCOLLECT, 0);
  return 0;
}

/// Collects garbage after the memory ran out. The objects that filled the memory are garbage once
/// their call has ended, but LuaJIT would not collect them before the next allocation fails as
/// well.
void CollectGarbage(State::Core& core) {
  core.out_of_memory = false;
  core.limits.Lend(kReserve);
  lua_cpcall(core.anchor, Collect, nullptr);
  core.limits.Lend(0);
  lua_settop(core.anchor, 0);
}

struct ProtectedRun {
  const std::function<void(lua_State*)>& body;
  std::exception_ptr error;
};

int RunProtected(lua_State* L) {
  auto& run = *static_cast<ProtectedRun*>(lua_touserdata(L, 1));
  lua_settop(L, 0);
  State::Core::Of(L).EndForgotten(L);
  try {
    run.body(L);
  } catch (const Error&) {
    run.error = std::current_exception();
  } catch (const std::bad_alloc&) {
    run.error = std::make_exception_ptr(ConfigError(OutOfMemory(State::Core::Of(L))));
  } catch (const std::exception& error) {  // not (...), which would also catch Lua errors
    run.error = std::make_exception_ptr(ConfigError(ForeignText(error.what())));
  }
  return 0;
}

int MakeCoroutine(lua_State* L) {
  auto* made = static_cast<lua_State**>(lua_touserdata(L, 1));
  *made = lua_newthread(L);
  luaL_ref(L, LUA_REGISTRYINDEX);  // Coroutines are kept for ever and used again.
  return 0;
}

lua_State* NewCoroutine(lua_State* L) {
  lua_State* made = nullptr;
  if (int status = lua_cpcall(L, MakeCoroutine, &made)) ThrowLuaError(L, status);
  return made;
}

}  // namespace

void Turn::Take() {
  mutex_.lock();
  ++depth_;
}

void Turn::Leave() {
  --depth_;
  mutex_.unlock();
}

int Turn::GiveAway() {
  const int depth = std::exchange(depth_, 0);
  for (int i = 0; i < depth; ++i) mutex_.unlock();
  return depth;
}

void Turn::Reclaim(int depth) {
  for (int i = 0; i < depth; ++i) mutex_.lock();
  depth_ = depth;
}

State::Core::Core(State& owner, StateOptions options)
    : owner(owner), options(std::move(options)), limits(this->options.memory_limit) {
  main = lua_newstate(Allocate, this);
  STRATA_CHECK(main != nullptr) << "no memory for a Lua state";
  luaJIT_setmode(main, 0, LUAJIT_MODE_ENGINE | LUAJIT_MODE_OFF);
  lua_gc(main, LUA_GCSETPAUSE, 150);
  anchor = NewCoroutine(main);
  SetWatch(Watch::kLoosely);
}

State::Core::~Core() { lua_close(main); }

State::Core& State::Core::Of(lua_State* L) {
  void* core = nullptr;
  lua_getallocf(L, &core);
  return *static_cast<Core*>(core);
}

void State::Core::SetWatch(Watch new_watch) {
  watch = new_watch;
  if (watch == Watch::kLoosely) last_place.clear();
  const int mask = LUA_MASKCOUNT | (watch == Watch::kClosely ? LUA_MASKLINE : 0);
  lua_sethook(main, Hook, mask, hook_interval);
}

std::string State::Core::Place(lua_State* L) {
  if (!last_place.empty()) return last_place;
  lua_Debug info;
  for (int level = 0; lua_getstack(L, level, &info); ++level) {
    lua_getinfo(L, "Sl", &info);
    if (info.currentline > 0 && !IsOwn(info)) return PlaceOf(info);
  }
  return "";
}

const Chunk* State::Core::ChunkAt(const std::string& place) const {
  const auto found = chunks.find(place.substr(0, place.rfind(':')));
  return found == chunks.end() ? nullptr : &found->second;
}

const Chunk& State::Core::CallingChunk(lua_State* L) {
  if (const Chunk* calling = ChunkAt(Place(L))) return *calling;
  const auto found = chunks.find(script);
  static const Chunk kPrompt{"", ".", ""};
  return found == chunks.end() ? kPrompt : found->second;
}

void State::Core::Forget(int reference) {
  const std::lock_guard lock(forgotten_mutex);
  forgotten.push_back(reference);
}

void State::Core::EndForgotten(lua_State* L) {
  std::vector<int> references;
  {
    const std::lock_guard lock(forgotten_mutex);
    references.swap(forgotten);
  }
  for (const int reference : references) luaL_unref(L, LUA_REGISTRYINDEX, reference);
}

Session::Session(State& state, Watch watch) : core_(state.core()) {
  core_.turn.Take();
  if (core_.open_sessions++ > 0) return;
  core_.limits.Begin(watch == Watch::kClosely ? core_.options.seconds : 0, &core_.last_place);
  core_.hook_interval = kHookInterval;
  core_.last_place.clear();
  core_.world_error.clear();
  core_.SetWatch(watch);
}

Session::~Session() {
  if (--core_.open_sessions == 0) core_.limits.End();
  core_.turn.Leave();
}

void Session::Run(const std::function<void(lua_State*)>& body) {
  if (core_.idle_coroutines.empty()) core_.idle_coroutines.push_back(NewCoroutine(core_.anchor));
  lua_State* L = core_.idle_coroutines.back();
  core_.idle_coroutines.pop_back();
  struct GiveBack {
    State::Core& core;
    lua_State* L;
    int calls = c_calls;
    ~GiveBack() {
      lua_settop(L, 0);
      core.idle_coroutines.push_back(L);
      c_calls = calls;
    }
  } give_back{core_, L};

  const MayRunScript may_run;
  const OutsideScript inside(nullptr);
  const ClockSwitch on_the_clock(core_.limits, true);
  std::string place = core_.last_place;  // the line that waits for this call, if any
  ProtectedRun run{body, nullptr};
  const int status = lua_cpcall(L, RunProtected, &run);
  if (status == LUA_ERRMEM || core_.out_of_memory) {
    lua_settop(L, status == 0 ? 0 : 1);
    CollectGarbage(core_);
  }
  if (status != 0) ThrowLuaError(L, status);
  if (run.error) std::rethrow_exception(run.error);
  if (core_.watch == Watch::kClosely) core_.last_place = std::move(place);
}

Unlocked::Unlocked(State& state)
    : core_(state.core()), watch_(core_.watch), place_(core_.last_place), random_(core_.random) {
  core_.limits.EndTimeLimit();
  core_.SetWatch(Watch::kLoosely);
  depth_ = core_.turn.GiveAway();
}

Unlocked::~Unlocked() {
  core_.turn.Reclaim(depth_);
  core_.SetWatch(watch_);
  core_.last_place = std::move(place_);
  core_.random = std::move(random_);
}

Evaluating::Evaluating(State::Core& core, const std::string& script, Settings* settings)
    : core_(core),
      script_(std::exchange(core.script, script)),
      settings_(std::exchange(core.settings, settings)) {}

Evaluating::~Evaluating() {
  core_.settings = settings_;
  core_.script = script_;
}

void SetArguments(lua_State* L, const std::vector<std::string>& arguments) {
  lua_pushliteral(L, "arg");
  lua_rawget(L, LUA_GLOBALSINDEX);
  const int table = lua_gettop(L);
  const size_t size = lua_istable(L, table) ? std::max(lua_objlen(L, table), arguments.size()) : 0;
  for (size_t i = 0; i < size; ++i) {
    if (i < arguments.size()) {
      PushText(L, arguments[i]);
    } else {
      lua_pushnil(L);
    }
    lua_rawseti(L, table, static_cast<int>(i) + 1);
  }
  lua_pop(L, 1);
}

void TakeMemory(lua_State* L, size_t bytes) {
  State::Core& core = State::Core::Of(L);
  if (core.limits.Take(bytes)) return;
  lua_gc(L, LUA_GCCOLLECT, 0);
  if (!core.limits.Take(bytes)) throw ConfigError(OutOfMemory(core));
}

void CallProtected(lua_State* L, int arguments, int results) {
  const int handler = lua_gettop(L) - arguments;
  lua_pushcfunction(L, AddPlace);
  lua_insert(L, handler);
  if (int status = lua_pcall(L, arguments, results, handler)) ThrowLuaError(L, status);
  lua_remove(L, handler);
}

NestedCall::NestedCall(lua_State* L)
    : core_(State::Core::Of(L)), place_(core_.last_place), depth_(c_calls) {
  if (depth_ >= kMaxCCalls) throw ConfigError("stack overflow: calls are nested too deeply");
  ++c_calls;
}

NestedCall::~NestedCall() {
  c_calls = depth_;
  if (core_.watch == Watch::kClosely) core_.last_place = std::move(place_);
}

void CallNested(lua_State* L, int arguments, int results) {
  NestedCall nested(L);
  lua_call(L, arguments, results);
}

void PrintText(lua_State* L, const std::string& text) { PrintText(State::Core::Of(L), text); }

void PrintText(const State::Core& core, const std::string& text) {
  const auto& print = core.options.print;
  if (print) {
    print(text);
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
}

bool HasPlace(std::string_view message) {
  message = message.substr(0, message.find('\n'));
  for (size_t colon = message.find(':'); colon != std::string_view::npos;
       colon = message.find(':', colon + 1)) {
    size_t end = colon + 1;
    while (end < message.size() && std::isdigit(static_cast<unsigned char>(message[end]))) ++end;
    if (end > colon + 1 && message.substr(end).starts_with(": ")) return true;
  }
  return false;
}

}  // namespace strata::lua
