#include "launcher/interrupts.h"

#include <signal.h>

#include <utility>

namespace strata::launcher {
namespace {

// A signal handler finds nothing but globals.
lua::State* running_state = nullptr;
volatile sig_atomic_t interrupted = 0;

void OnSignal(int) {
  interrupted = 1;
  if (running_state != nullptr) running_state->Interrupt();
}

void Handle(void (*handler)(int)) {
  struct sigaction action = {};
  action.sa_handler = handler;  // no SA_RESTART: a read of the terminal returns
  ::sigaction(SIGINT, &action, nullptr);
}

}  // namespace

Interrupts::Interrupts(lua::State& state) {
  running_state = &state;
  interrupted = 0;
  Handle(&OnSignal);
}

Interrupts::~Interrupts() {
  Handle(SIG_DFL);
  running_state = nullptr;
}

bool Interrupts::Take() {
  const bool was = interrupted != 0;
  interrupted = 0;
  return was;
}

}  // namespace strata::launcher
