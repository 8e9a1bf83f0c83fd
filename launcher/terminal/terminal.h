// Terminal: where the launcher writes for people. On a terminal the last line may be a status that
// changes in place; into a file or a pipe only whole lines go, and no control characters.
#pragma once

#include <string>
#include <string_view>

namespace strata::launcher {

class Terminal {
 public:
  /// Standard output and standard error, or others in a test.
  explicit Terminal(int out = 1, int err = 2);
  ~Terminal() { ClearStatus(); }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  /// Whether standard output is a terminal that can move its cursor.
  bool interactive() const { return interactive_; }
  /// Whether it shows characters beyond ASCII (by the locale's variables).
  bool unicode() const { return unicode_; }
  /// Columns; 80 where nobody knows.
  int width() const;

  /// Writes a line (or several), which stays. Throws WorldError when it cannot be written.
  void Line(std::string_view text);
  /// The same to standard error.
  void ErrorLine(std::string_view text);
  /// Shows `text` below the lines, in place of the last status, cut to the width. Only where
  /// interactive.
  void Status(std::string_view text);
  void ClearStatus();

 private:
  int out_;
  int err_;
  bool interactive_;
  bool unicode_;
  std::string status_;  // as shown
};

/// The beginning of `text` that has at most `columns` characters (UTF-8).
std::string_view Cut(std::string_view text, int columns);

}  // namespace strata::launcher
