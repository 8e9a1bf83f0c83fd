// The script's thread is interrupted by a signal. It may be anywhere in LuaJIT then, so its handler
// sets a hook, which Lua calls between two instructions, and which notes the calls. If Lua does not
// come to a next instruction, the thread is within a C function that the script called, and a
// second signal's handler may read the calls as they are.
#include "lua/engine/script_stack.h"

#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <ctime>
#include <mutex>

#include "lua/core/core.h"

namespace strata::lua {
namespace {

constexpr int kMostCalls = 40;
constexpr long kPatience = 100'000'000;  // nanoseconds, for each of the two ways

// One script runs at a time, whatever the thread: calls take turns.
std::atomic<lua_State*> running = nullptr;
std::atomic<int> running_thread = 0;

/// Not kept: ranks are forked from a thread that may have run the script before.
int ThisThread() { return static_cast<int>(::syscall(SYS_gettid)); }

/// What the thread that asks waits for.
struct Question {
  std::atomic<bool> is_open = false;
  std::atomic<bool> in_c = false;  // the thread did not come to a next instruction
  std::array<char, 4096> text;
  std::atomic<size_t> size = 0;
  sem_t answered;
};
Question question;

/// Writes the calls; allocates nothing.
void Answer(lua_State* L) {
  if (!question.is_open.exchange(false)) return;
  size_t size = 0;
  lua_Debug call;
  for (int level = 0; level < kMostCalls && lua_getstack(L, level, &call) != 0; ++level) {
    lua_getinfo(L, "nSl", &call);
    if (call.currentline <= 0 && !call.name) continue;
    const size_t left = question.text.size() - size;
    char* const to = question.text.data() + size;
    const char* const name = call.name ? call.name : call.what;
    const int written = call.currentline > 0 ? std::snprintf(to, left, "  %s:%d in %s\n",
                                                             call.short_src, call.currentline, name)
                                             : std::snprintf(to, left, "  [C] in %s\n", name);
    if (written < 0 || static_cast<size_t>(written) >= left) break;
    size += static_cast<size_t>(written);
  }
  question.size = size;
  ::sem_post(&question.answered);
}

void Hook(lua_State* L, lua_Debug*) {
  Answer(L);
  State::Core& core = State::Core::Of(L);
  core.SetWatch(core.watch);
}

int Signal() { return SIGRTMIN + 8; }

void OnSignal(int) {
  const int error = errno;
  lua_State* const L = running;
  if (L && running_thread == ThisThread()) {
    if (question.in_c) {
      Answer(L);
    } else {
      lua_sethook(L, Hook, LUA_MASKCOUNT, 1);  // which a signal handler may do
    }
  }
  errno = error;
}

void Prepare() {
  static const bool is_ready = [] {
    ::sem_init(&question.answered, 0, 0);
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    return ::sigaction(Signal(), &action, nullptr) == 0;
  }();
  static_cast<void>(is_ready);
}

/// Interrupts the thread; whether it has answered.
bool Ask(int thread, bool in_c) {
  question.in_c = in_c;
  if (::syscall(SYS_tgkill, ::getpid(), thread, Signal()) != 0) return false;
  timespec end;
  ::clock_gettime(CLOCK_MONOTONIC, &end);
  end.tv_nsec += kPatience;
  end.tv_sec += end.tv_nsec / 1'000'000'000;
  end.tv_nsec %= 1'000'000'000;
  int rc;
  while ((rc = ::sem_clockwait(&question.answered, CLOCK_MONOTONIC, &end)) != 0 && errno == EINTR)
    continue;
  return rc == 0;
}

}  // namespace

InScript::InScript(lua_State* L) : before_(running), thread_before_(running_thread) {
  running_thread = ThisThread();
  running = L;
}

InScript::~InScript() {
  running = before_;
  running_thread = thread_before_;
}

std::string ScriptStack(int thread) {
  static std::mutex asking;
  const std::lock_guard lock(asking);
  Prepare();
  const int there = running_thread;
  if (!running || (thread != 0 && thread != there)) return "";
  while (::sem_trywait(&question.answered) == 0) continue;  // a late answer to an earlier question
  question.size = 0;
  question.is_open = true;
  const bool answered = Ask(there, /*in_c=*/false) || Ask(there, /*in_c=*/true);
  question.is_open = false;
  return answered ? std::string(question.text.data(), question.size) : "";
}

}  // namespace strata::lua
