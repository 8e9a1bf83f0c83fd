// Pty: a pseudo terminal for tests. The test types keys and reads the screen.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <string>

#include "launcher/process/pipes.h"

namespace strata::launcher {

/// Both ends of a pseudo terminal of 80 columns. Bytes written to `user` are typed keys; bytes read
/// from `user` are the screen's output.
struct Pty {
  Pty() {
    int user_fd, program_fd;
    winsize size = {.ws_row = 25, .ws_col = 80, .ws_xpixel = 0, .ws_ypixel = 0};
    EXPECT_EQ(::openpty(&user_fd, &program_fd, nullptr, nullptr, &size), 0);
    user = Fd(user_fd);
    program = Fd(program_fd);
  }

  void Type(std::string_view keys) { WriteAll(user.get(), keys, "the terminal"); }

  /// Reads until `text` has come. Returns all output since the last call, up to the end of `text`.
  /// Fails the test when `text` does not come within 20 seconds.
  std::string ReadUntil(std::string_view text) {
    size_t at;
    while ((at = pending_.find(text)) == std::string::npos) {
      pollfd readable = {user.get(), POLLIN, 0};
      std::array<char, 4096> buffer;
      const bool ready = ::poll(&readable, 1, 20'000) == 1;
      const ssize_t count = ready ? ::read(user.get(), buffer.data(), buffer.size()) : -1;
      if (count <= 0) {
        ADD_FAILURE() << "waited for \"" << text << "\", got \"" << pending_ << "\"";
        return std::exchange(pending_, "");
      }
      pending_.append(buffer.data(), static_cast<size_t>(count));
    }
    std::string result = pending_.substr(0, at + text.size());
    pending_.erase(0, at + text.size());
    return result;
  }

  Fd user;
  Fd program;

 private:
  std::string pending_;
};

}  // namespace strata::launcher
