// Only the thread that runs a script may look at its stack: who asks leaves a note, and the hook of
// that thread answers between two instructions.
#include "lua/core/calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <lua.hpp>
#include <mutex>

#include "engine/base/text.h"

namespace strata::lua {
namespace {

constexpr int kMostCalls = 40;
constexpr std::chrono::milliseconds kPatience{100};

std::atomic<int> sessions = 0;
std::atomic<bool> is_asked = false;
std::mutex mutex;
std::condition_variable answered;
// Guarded by the mutex.
bool has_answer = false;
int answer_thread = 0;
std::string answer;

std::string CallsOf(lua_State* L) {
  std::string calls;
  lua_Debug call;
  for (int level = 0; level < kMostCalls && lua_getstack(L, level, &call) != 0; ++level) {
    lua_getinfo(L, "nSl", &call);
    const std::string name = call.name ? call.name : call.what;
    if (call.currentline > 0) {
      calls += Str("  ", call.short_src, ":", call.currentline, " in ", name, "\n");
    } else if (call.name) {
      calls += Str("  [C] in ", name, "\n");
    }
  }
  return calls;
}

}  // namespace

MayRunScript::MayRunScript() { ++sessions; }
MayRunScript::~MayRunScript() { --sessions; }

void AnswerCalls(lua_State* L) {
  if (!is_asked.load(std::memory_order_relaxed) || !is_asked.exchange(false)) return;
  std::string calls = CallsOf(L);
  const std::lock_guard lock(mutex);
  answer = std::move(calls);
  answer_thread = static_cast<int>(::syscall(SYS_gettid));
  has_answer = true;
  answered.notify_all();
}

std::string ScriptCalls(int thread) {
  static std::mutex asking;
  const std::lock_guard one_at_a_time(asking);
  if (sessions == 0) return "";
  std::unique_lock lock(mutex);
  has_answer = false;
  is_asked = true;
  answered.wait_for(lock, kPatience, [] { return has_answer; });
  is_asked = false;
  return has_answer && (thread == 0 || thread == answer_thread) ? answer : "";
}

}  // namespace strata::lua
