// LineSplitter: cuts bytes into lines. OutputStream: reads a process's output line by line.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "engine/base/fd.h"

namespace strata::launcher {

/// Collects bytes and passes whole lines, without their newline, to `take`.
class LineSplitter {
 public:
  using Take = std::function<void(std::string_view line)>;
  /// The handling of a line of more than `longest` bytes.
  enum class Overlong {
    kCut,    ///< passes it on in pieces, for lines that people read
    kThrow,  ///< throws WorldError, for lines that are messages
  };

  LineSplitter(size_t longest, Overlong overlong) : longest_(longest), overlong_(overlong) {}
  /// Appends bytes and passes on whole lines. Exceptions of `take` are passed on; the lines after
  /// that one come with the next call.
  void Add(std::string_view bytes, const Take& take);
  /// Passes on the rest, which has no newline at its end.
  void Finish(const Take& take);

 private:
  size_t longest_;
  Overlong overlong_;
  std::string pending_;
  size_t searched_ = 0;  // that many bytes of pending_ are known to have no newline
};

/// A process's standard output or standard error.
class OutputStream {
 public:
  /// The longest line that is passed on as a whole, in bytes.
  static constexpr size_t kLongest = 1 << 16;

  /// Makes `fd` non-blocking.
  OutputStream(Fd fd, LineSplitter::Take take);
  int fd() const { return fd_.get(); }
  bool is_open() const { return fd_.is_open(); }
  /// Reads once. Closes the descriptor at the end of the stream. True if there may be more to read.
  bool Read();

 private:
  Fd fd_;
  LineSplitter lines_{kLongest, LineSplitter::Overlong::kCut};
  LineSplitter::Take take_;
};

}  // namespace strata::launcher
