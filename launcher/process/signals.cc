// Reads signals by signalfd().
#include "launcher/process/signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

namespace strata::launcher {
namespace {

constexpr int kEnding[] = {SIGINT, SIGTERM, SIGHUP};
/// Shells make background jobs ignore SIGQUIT. Here it is read all the same, because it does not
/// end the job.
constexpr int kAsking[] = {SIGQUIT, SIGUSR1};

bool IsIgnored(int signal) {
  struct sigaction action;
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

void LeaveSignalsToLauncher() {
  for (int signal : kEnding) ::signal(signal, SIG_IGN);
  for (int signal : kAsking) ::signal(signal, SIG_IGN);
}

SignalQueue::SignalQueue() {
  ::signal(SIGCHLD, SIG_DFL);  // if it were ignored, waitpid() would not give exit codes
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGCHLD);
  for (int signal : kEnding) {
    if (!IsIgnored(signal)) sigaddset(&set, signal);
  }
  for (int signal : kAsking) sigaddset(&set, signal);
  ::sigprocmask(SIG_BLOCK, &set, &old_);
  fd_ = Fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd_.is_open()) ThrowErrno("cannot make a signalfd");
}

int SignalQueue::Next() {
  signalfd_siginfo info;
  return ::read(fd_.get(), &info, sizeof(info)) == sizeof(info) ? static_cast<int>(info.ssi_signo)
                                                                : 0;
}

}  // namespace strata::launcher
