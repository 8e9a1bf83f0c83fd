// MessageBuffer: bytes as they come from a descriptor, cut into the lines that are messages. (What
// people read is cut by LineSplitter, lines.h, which hands on any line, in pieces if need be.)
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace strata::launcher {

class MessageBuffer {
 public:
  static constexpr size_t kLongest = size_t{64} << 20;

  /// Calls `take` for each line that is now complete, without its newline. Throws WorldError when
  /// more than kLongest bytes wait for an end, and what `take` throws.
  void Add(std::string_view bytes, const std::function<void(std::string_view line)>& take);

 private:
  std::string pending_;
};

}  // namespace strata::launcher
