// A signal interrupts the thread; its handler stores the return addresses. Their names are looked
// up afterwards, outside of the handler.
#include "engine/runtime/watch/stack.h"

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <mutex>

#include "engine/base/check.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr int kMostFrames = 48;
/// The frames of the handler itself and of the kernel's trampoline.
constexpr int kOwnFrames = 2;
constexpr long kPatience = 200'000'000;  // nanoseconds

/// The answer to a question; only one question is asked at a time. A late answer to an earlier
/// question may be taken for the next one's; at worst a stack of the wrong thread is shown.
struct Answer {
  std::array<void*, kMostFrames> frames;
  int count = 0;
  std::array<char, 4096> script;
  size_t script_size = 0;
  sem_t given;
};
Answer answer;
std::mutex asking;
std::atomic<std::string (*)(int)> script_stack = nullptr;
std::atomic<NoteScript> note_script = nullptr;

int Signal() { return SIGRTMIN + 7; }

void OnSignal(int) {
  const int error = errno;
  answer.count = ::backtrace(answer.frames.data(), kMostFrames);
  const NoteScript note = note_script;
  answer.script_size = note ? note(answer.script.data(), answer.script.size()) : 0;
  ::sem_post(&answer.given);
  errno = error;
}

std::string Name(const char* symbol) {
  int status = 0;
  char* plain = abi::__cxa_demangle(symbol, nullptr, nullptr, &status);
  std::string name = status == 0 ? plain : symbol;
  std::free(plain);
  constexpr size_t kLongest = 90;
  return name.size() > kLongest ? name.substr(0, kLongest) + "..." : name;
}

std::string FrameText(void* frame) {
  Dl_info info = {};
  if (::dladdr(frame, &info) == 0) return "?";
  const std::string path = info.dli_fname ? info.dli_fname : "?";
  const auto base = static_cast<char*>(info.dli_sname ? info.dli_saddr : info.dli_fbase);
  return Str(info.dli_sname ? Str(Name(info.dli_sname), " ") : "",
             Printf("+0x%tx", static_cast<char*>(frame) - base), " (",
             path.substr(path.rfind('/') + 1), ")");
}

}  // namespace

void PrepareStacks() {
  static const bool is_ready = [] {
    std::array<void*, 1> frame;
    ::backtrace(frame.data(), 1);  // loads a library, which a handler must not do
    ::sem_init(&answer.given, 0, 0);
    struct sigaction action = {};
    action.sa_handler = OnSignal;
    action.sa_flags = SA_RESTART;
    // Without a handler the signal would end the process.
    STRATA_CHECK(::sigaction(Signal(), &action, nullptr) == 0) << "signal " << Signal();
    return true;
  }();
  STRATA_CHECK(is_ready);
}

std::string StackOf(int thread, std::string* script) {
  const std::lock_guard lock(asking);
  while (::sem_trywait(&answer.given) == 0) continue;  // drop a late answer to an earlier question
  if (::syscall(SYS_tgkill, ::getpid(), thread, Signal()) != 0) return "";
  timespec end;
  ::clock_gettime(CLOCK_MONOTONIC, &end);  // the real-time clock may jump
  end.tv_nsec += kPatience;
  end.tv_sec += end.tv_nsec / 1'000'000'000;
  end.tv_nsec %= 1'000'000'000;
  while (::sem_clockwait(&answer.given, CLOCK_MONOTONIC, &end) != 0) {
    if (errno != EINTR) return "";
  }
  if (script) script->assign(answer.script.data(), answer.script_size);
  std::string text;
  for (int i = kOwnFrames; i < answer.count; ++i) {
    text += Str("  ", FrameText(answer.frames[static_cast<size_t>(i)]), "\n");
  }
  return text;
}

void SetScriptStack(std::string (*stack)(int), NoteScript note) {
  script_stack = stack;
  note_script = note;
}

std::string ScriptStack(int thread) {
  std::string (*const stack)(int) = script_stack;
  return stack ? stack(thread) : "";
}

void NoteStack(const Progress& progress) {
  if (progress.thread() == 0) return;
  std::string script = ScriptStack(progress.thread());
  std::string waits;  // of the script that waits for a C function
  const std::string own = StackOf(progress.thread(), &waits);
  if (script.empty()) script = waits;
  progress.flight().set_stack(script.empty() ? own : Str("script:\n", script, "thread:\n", own));
}

}  // namespace strata
