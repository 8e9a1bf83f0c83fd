// ScriptCalls(). Only the thread that runs a script may look at its stack. So the asking thread
// sets a flag, and the hook of the script's thread answers between two instructions.
#include "lua/core/calls.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <lua.hpp>
#include <mutex>

namespace strata::lua {
namespace {

constexpr int kMostCalls = 40;
constexpr size_t kMostText = 4096;
constexpr std::chrono::milliseconds kPatience{100};

std::atomic<int> sessions = 0;
std::atomic<bool> is_asked = false;
std::mutex mutex;
std::condition_variable answered;
// These are guarded by the mutex.
bool has_answer = false;
int answer_thread = 0;
std::string answer;

/// The state of this thread's innermost OutsideScript.
thread_local lua_State* volatile outside = nullptr;

/// A signal handler calls this function, so it allocates nothing and only reads the state.
size_t WriteCalls(lua_State* L, char* text, size_t size) {
  size_t used = 0;
  lua_Debug call;
  for (int level = 0; level < kMostCalls && lua_getstack(L, level, &call) != 0; ++level) {
    lua_getinfo(L, "nSl", &call);
    const char* const name = call.name ? call.name : call.what;
    char* const end = text + used;
    const size_t left = size - used;
    int wrote = 0;
    if (call.currentline > 0) {
      wrote = std::snprintf(end, left, "  %s:%d in %s\n", call.short_src, call.currentline, name);
    } else if (call.name) {
      wrote = std::snprintf(end, left, "  [C] in %s\n", name);
    }
    if (wrote < 0 || static_cast<size_t>(wrote) >= left) break;
    used += static_cast<size_t>(wrote);
  }
  return used;
}

std::string CallsOf(lua_State* L) {
  std::array<char, kMostText> text;
  return {text.data(), WriteCalls(L, text.data(), text.size())};
}

}  // namespace

size_t CallsHere(char* text, size_t size) {
  lua_State* const L = outside;
  return L == nullptr ? 0 : WriteCalls(L, text, size);
}

OutsideScript::OutsideScript(lua_State* L) : before_(outside) {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  outside = L;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

OutsideScript::~OutsideScript() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
  outside = before_;
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

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
