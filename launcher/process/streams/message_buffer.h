// MessageBuffer: cuts bytes from a descriptor into lines, of which each is a message. A line that
// is too long is an error. (For output that people read, LineSplitter in lines.h passes on long
// lines in pieces.)
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace strata::launcher {

class MessageBuffer {
 public:
  static constexpr size_t kLongest = size_t{64} << 20;  ///< bytes of a line

  /// Adds bytes, and calls `take` for each line that is complete now, without its newline. Throws
  /// WorldError when a line has more than kLongest bytes, and passes on what `take` throws.
  void Add(std::string_view bytes, const std::function<void(std::string_view line)>& take);

 private:
  std::string pending_;
};

}  // namespace strata::launcher
