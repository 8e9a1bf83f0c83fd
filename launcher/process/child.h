// Child: a program that a test runs as a child process and observes from outside.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/text.h"
#include "launcher/process/pipes.h"

namespace strata::launcher {

/// The longest wait of a test, in milliseconds. It is much longer than anything takes, even on a
/// loaded machine.
inline constexpr int kPatienceMs = 50'000;

/// Waits for the process's end; false if it has not ended after kPatienceMs.
inline bool Ends(pid_t pid) {
  const Fd fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!fd.is_open()) return true;
  pollfd process = {fd.get(), POLLIN, 0};
  return ::poll(&process, 1, kPatienceMs) == 1;
}

/// Replaces this process by the program. `command` is its path and its arguments.
[[noreturn]] inline void Exec(std::vector<std::string>& command) {
  std::vector<char*> pointers;
  for (std::string& word : command) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(pointers[0], pointers.data());
  ::_exit(127);
}

/// Waits for the child's end. Returns its exit code, or minus the signal that ended it.
inline int EndOf(pid_t pid) {
  int status;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/// Everything that was written into the pipe. Closes its write end.
inline std::string Drain(Pipe& pipe) {
  pipe.write.Close();
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(pipe.read.get(), buffer.data(), buffer.size())) > 0;) {
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  return text;
}

/// A running program. The destructor kills it.
class Child {
 public:
  /// kFull: the pipe is full of newlines until the test reads.
  enum class Output { kEmpty, kFull };

  /// `command` is the program's path and its arguments. The test reads its standard output and
  /// standard error together. `input` is the content of its standard input.
  explicit Child(std::vector<std::string> command, const std::string& input = "",
                 Output output = Output::kEmpty) {
    Pipe out = MakePipe(), in = MakePipe();
    if (output == Output::kFull) {
      const int size = ::fcntl(out.write.get(), F_GETPIPE_SZ);
      WriteAll(out.write.get(), std::string(static_cast<size_t>(size), '\n'), "a pipe");
    }
    WriteAll(in.write.get(), input, "the child's input");
    in.write.Close();
    pid_ = ::fork();
    if (pid_ == 0) {
      ::dup2(in.read.get(), STDIN_FILENO);
      ::dup2(out.write.get(), STDOUT_FILENO);
      ::dup2(out.write.get(), STDERR_FILENO);
      Exec(command);
    }
    output_ = std::move(out.read);
  }
  ~Child() {
    if (pid_ != 0) Kill(SIGKILL), Wait();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// The next line of its output, without the newline; "" at the end.
  std::string Line() {
    size_t end;
    while ((end = text_.find('\n')) == std::string::npos) {
      if (!ReadMore()) return std::exchange(text_, "");
    }
    const std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }

  /// All output from now on, until it closes its output.
  std::string Text() {
    while (ReadMore()) continue;
    return std::exchange(text_, "");
  }

  std::vector<std::string> Lines() {
    std::vector<std::string> lines = Split(Text(), '\n');
    if (lines.back().empty()) lines.pop_back();
    return lines;
  }

  void StopReading() { output_.Close(); }

  void Kill(int signal) { ::kill(pid_, signal); }

  /// Its exit code, or minus the signal that ended it.
  int Wait() { return EndOf(std::exchange(pid_, 0)); }

  pid_t pid() const { return pid_; }

 private:
  bool ReadMore() {
    pollfd readable = {output_.get(), POLLIN, 0};
    if (::poll(&readable, 1, kPatienceMs) != 1) {
      ADD_FAILURE() << "the child writes nothing more, but does not end";
      return false;
    }
    std::array<char, 4096> buffer;
    const ssize_t count = ::read(output_.get(), buffer.data(), buffer.size());
    if (count <= 0) return false;
    text_.append(buffer.data(), static_cast<size_t>(count));
    return true;
  }

  pid_t pid_ = 0;
  Fd output_;
  std::string text_;
};

}  // namespace strata::launcher
