// Lines: what a process writes to its standard output, cut into lines.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace strata::launcher {

/// Collects bytes and hands on whole lines, without their newline.
class LineSplitter {
 public:
  using Sink = std::function<void(std::string_view line)>;
  /// A line longer than this is handed on in pieces.
  static constexpr size_t kLongest = 1 << 16;

  explicit LineSplitter(Sink sink) : sink_(std::move(sink)) {}
  void Add(std::string_view bytes);
  /// Hands on what stands without a newline at the end.
  void Finish();

 private:
  Sink sink_;
  std::string pending_;
};

}  // namespace strata::launcher
