// PtyChild: a program that a test runs on its own pseudo terminal, as a user would.
#pragma once

#include <signal.h>
#include <sys/wait.h>

#include <string>
#include <utility>
#include <vector>

#include "launcher/terminal/pty.h"

namespace strata::launcher {

/// The running program. The destructor kills it.
class PtyChild {
 public:
  explicit PtyChild(std::vector<std::string> command) {
    pid_ = ::fork();
    if (pid_ == 0) Exec(command);
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
  int Wait() {
    int status;
    ::waitpid(std::exchange(pid_, 0), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
  }

 private:
  [[noreturn]] void Exec(std::vector<std::string>& command) {
    ::setsid();
    ::ioctl(pty_.program.get(), TIOCSCTTY, 0);
    for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(pty_.program.get(), fd);
    pty_.user.Close();
    std::vector<char*> pointers;
    for (std::string& word : command) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    ::execv(pointers[0], pointers.data());
    ::_exit(127);
  }

  Pty pty_;
  pid_t pid_ = 0;
};

}  // namespace strata::launcher
