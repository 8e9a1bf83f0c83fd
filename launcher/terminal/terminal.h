// Terminal: the launcher's output for the user. On a terminal the last line may be a status that is
// replaced in place. A file or a pipe gets only whole lines, without control characters.
#pragma once

#include <string>
#include <string_view>

#include "launcher/process/output_queue.h"

namespace strata::launcher {

/// The number of a terminal's columns; 80 if it is unknown.
int ColumnsOf(int fd);

class Terminal {
 public:
  /// Writes to standard output and standard error; tests give other descriptors.
  explicit Terminal(int out = 1, int err = 2);
  ~Terminal() { ClearStatus(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// True if standard output is a terminal that can move its cursor.
  bool interactive() const { return interactive_; }
  /// True if interactive() and colors are not switched off ($NO_COLOR, no-color.org).
  bool colors() const;
  /// True if the locale's variables say that characters beyond ASCII can be shown.
  bool unicode() const { return unicode_; }
  int width() const { return ColumnsOf(out_); }

  /// Writes one or several lines, which stay, to standard output or to standard error. Throws
  /// WorldError if that fails.
  void Line(std::string_view text, bool is_error = false);
  /// Writes text without ending the line. REQUIRES: no status is shown.
  void Text(std::string_view text) { Write(out_, text); }
  /// Line() to standard error.
  void ErrorLine(std::string_view text) { Line(text, /*is_error=*/true); }
  /// Shows `text` below the lines in place of the last status, cut to the width. Does nothing
  /// unless interactive().
  void Status(std::string_view text);
  void ClearStatus();
  /// The queue of the output, for a supervisor, which must not block.
  OutputQueue& output() { return output_; }

 private:
  void Write(int fd, std::string_view text);

  OutputQueue output_;
  int out_;
  int err_;
  bool interactive_;
  bool unicode_;
  std::string status_;  // the status that is shown now
};

/// The longest beginning of `text` with at most `columns` characters (UTF-8).
std::string_view Cut(std::string_view text, int columns);

}  // namespace strata::launcher
