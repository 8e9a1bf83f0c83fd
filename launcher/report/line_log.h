// LineLog: a file with a line for each step, to which a resumed training appends.
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
  /// Opens `path`, which error messages call "WHAT PATH"; makes the file and its folder if they do
  /// not exist. Empties the file unless the training `goes_on`, that is continues another one.
  /// Throws WorldError; also for a FIFO without a reader.
  LineLog(std::string what, const std::string& path, bool goes_on);

  /// Removes all lines, for a new training. Does not change anything but regular files.
  void Clear();
  /// Removes all lines from the first one for which `comes_again` is true, and an incomplete last
  /// line, which a killed training may leave. Does not change anything but regular files. If
  /// `comes_again` throws ConfigError, throws it with the file and the line, and changes nothing.
  void CutFrom(const std::function<bool(std::string_view line)>& comes_again);
  /// The first line; "" if there is none.
  std::string FirstLine() const;
  /// Appends a line. Throws WorldError if it cannot be written.
  void Write(std::string_view line);

 private:
  bool IsRegular() const;
  std::string Read() const;
  void Cut(size_t bytes);

  const std::string path_;
  const std::string name_;
  Fd fd_;
};

/// The point at which a training continues.
struct GoesOn {
  int64_t done = 0;              ///< number of steps that are done
  bool owes_evaluation = false;  ///< the evaluation of the last done step is missing
  bool owes_samples = true;      ///< the samples of that step are missing, if it writes some
};

/// True if the record of a step, an evaluation or samples will be written again by a training that
/// continues from `from`.
bool ComesAgain(const Value& record, const GoesOn& from);

}  // namespace strata::launcher
