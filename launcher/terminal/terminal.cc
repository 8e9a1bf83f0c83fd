// Terminal: lines that stay, and the status below them.
#include "launcher/terminal/terminal.h"

#include <sys/ioctl.h>

#include <cstdlib>

#include "engine/base/fd.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

constexpr std::string_view kEraseLine = "\r\033[K";

bool LocaleIsUtf8() {
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    const char* value = std::getenv(name);
    if (value == nullptr || *value == '\0') continue;
    const std::string locale = Lower(value);
    return locale.find("utf-8") != std::string::npos || locale.find("utf8") != std::string::npos;
  }
  return false;
}

}  // namespace

int ColumnsOf(int fd) {
  winsize size = {};
  const bool known = ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

Terminal::Terminal(int out, int err)
    : out_(out), err_(err), interactive_(IsTerminal(out)), unicode_(LocaleIsUtf8()) {}

bool Terminal::colors() const { return ShowsColors(out_); }

void Terminal::Line(std::string_view text, bool is_error) {
  const std::string status = status_;
  ClearStatus();
  Write(is_error ? err_ : out_, Str(text, "\n"));
  Status(status);
}

void Terminal::Status(std::string_view text) {
  if (!interactive_ || text.empty()) return;
  status_ = Cut(text, width() - 1);
  Write(out_, Str(kEraseLine, status_));
}

void Terminal::ClearStatus() {
  if (status_.empty()) return;
  status_.clear();
  Write(out_, kEraseLine);
}

void Terminal::Write(int fd, std::string_view text) {
  output_.Write(fd, text, fd == out_ ? "standard output" : "standard error");
}

std::string_view Cut(std::string_view text, int columns) {
  for (size_t i = 0; i < text.size(); ++i) {
    const bool starts_character = (text[i] & 0xC0) != 0x80;
    if (starts_character && columns-- <= 0) return text.substr(0, i);
  }
  return text;
}

}  // namespace strata::launcher
