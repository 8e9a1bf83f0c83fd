// LineSplitter: cuts the bytes that a process writes to its output into lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace strata::launcher {

/// Collects bytes and passes whole lines, without their newline, to a sink.
class LineSplitter {
 public:
  using Sink = std::function<void(std::string_view line)>;
  /// A longer line is passed on in pieces.
  static constexpr size_t kLongest = 1 << 16;

  explicit LineSplitter(Sink sink) : sink_(std::move(sink)) {}
  void Add(std::string_view bytes);
  /// Passes on the rest, which has no newline at its end.
  void Finish();

 private:
  Sink sink_;
  std::string pending_;
};

}  // namespace strata::launcher
