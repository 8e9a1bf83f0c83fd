// PtyChild: a program that a test runs on its own pseudo terminal, as a user would.
#pragma once

#include <signal.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/process/child.h"
#include "launcher/terminal/pty.h"

namespace strata::launcher {

/// The running program. The destructor kills it.
class PtyChild {
 public:
  explicit PtyChild(std::vector<std::string> command) {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::setsid();
      ::ioctl(pty_.program.get(), TIOCSCTTY, 0);
      for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(pty_.program.get(), fd);
      pty_.user.Close();
      Exec(command);
    }
    pty_.program.Close();
  }
  ~PtyChild() {
    if (pid_ != 0) ::kill(pid_, SIGKILL), Wait();
  }
  PtyChild(const PtyChild&) = delete;
  PtyChild& operator=(const PtyChild&) = delete;

  /// Types keys. "\003" is Ctrl-C, which sends SIGINT to the terminal's foreground group.
  void Type(std::string_view keys) { pty_.Type(keys); }
  std::string ReadUntil(std::string_view text) { return pty_.ReadUntil(text); }

  /// Its exit code, or minus the signal that ended it.
  int Wait() { return EndOf(std::exchange(pid_, 0)); }

 private:
  Pty pty_;
  pid_t pid_ = 0;
};

}  // namespace strata::launcher
