// Handles Ctrl-C in a signal handler, which may only set globals.
#include "launcher/prompt/interrupts.h"

#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string_view>
#include <utility>

namespace strata::launcher {
namespace {

// Globals, since a signal handler has no other data.
lua::State* running_state = nullptr;
volatile sig_atomic_t interrupted = 0;

int interrupt_fd = -1;

void OnSignal(int) {
  const int error = errno;
  interrupted = 1;
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(interrupt_fd, &one, sizeof(one));
  if (running_state != nullptr && !running_state->Interrupt()) {
    constexpr std::string_view kEnds = "strata: interrupted\n";
    [[maybe_unused]] const ssize_t said = ::write(STDERR_FILENO, kEnds.data(), kEnds.size());
    ::signal(SIGINT, SIG_DFL);
    ::raise(SIGINT);
  }
  errno = error;
}

void Handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;  // without SA_RESTART, so a read from the terminal returns
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Interrupts::Interrupts(lua::State& state) {
  running_state = &state;
  interrupted = 0;
  InterruptFd();
  Handle(&OnSignal);
}

Interrupts::~Interrupts() {
  Handle(SIG_DFL);
  running_state = nullptr;
}

int InterruptFd() {
  if (interrupt_fd < 0) interrupt_fd = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  return interrupt_fd;
}

bool Interrupts::Take() {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

}  // namespace strata::launcher
