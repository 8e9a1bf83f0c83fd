// LineLog: a file with a line for each step, which a training that goes on continues.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "engine/base/fd.h"
#include "engine/base/value.h"

namespace strata::launcher {

class LineLog {
 public:
  /// Opens `path`, which errors call "WHAT PATH"; makes it, and its folder,
  /// where they are not there. Unless the
  /// training `goes_on`, what it held is gone. Throws WorldError; also for a FIFO without a reader.
  LineLog(std::string what, const std::string& path, bool goes_on);

  /// Removes all lines, for a training that begins. Leaves what is no regular file as it is.
  void Clear();
  /// Removes all lines from the first one for which `comes_again` is true, and a last one that is
  /// not whole: a killed training has left it. Leaves what is no regular file as it is. Throws
  /// ConfigError, and changes nothing, where `comes_again` throws it: names file and line.
  void CutFrom(const std::function<bool(std::string_view line)>& comes_again);
  /// The first line; "" when there is none.
  std::string FirstLine() const;
  /// Appends a line. Throws WorldError when it cannot be written.
  void Write(std::string_view line);

 private:
  bool IsRegular() const;
  std::string Read() const;
  void Cut(size_t bytes);

  const std::string path_;
  const std::string name_;
  Fd fd_;
};

/// Where a training goes on.
struct GoesOn {
  int64_t done = 0;              ///< steps
  bool owes_evaluation = false;  ///< of the last step that is done
  bool owes_samples = true;      ///< of that step, if it wrote some
};

/// Whether the record of a step, an evaluation or samples comes again.
bool ComesAgain(const Value& record, const GoesOn& from);

}  // namespace strata::launcher
