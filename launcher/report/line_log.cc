// Appends lines, and removes those of steps that will be repeated.
#include "launcher/report/line_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {

LineLog::LineLog(std::string what, const std::string& path, bool goes_on)
    : path_(path), name_(Str(what, " ", path)) {
  std::error_code error;  // an error shows when the file is opened
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  // O_NONBLOCK, because opening a FIFO would otherwise wait for its reader.
  constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK;
  fd_ = Fd(::open(path.c_str(), kFlags | (goes_on ? 0 : O_TRUNC), 0666));
  if (!fd_.is_open() && errno == ENXIO) {
    throw WorldError(Str("cannot write to ", name_, ": nobody reads from it"));
  }
  if (!fd_.is_open()) ThrowErrno("cannot write to " + name_);
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (::fcntl(fd_.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    ThrowErrno("cannot write to " + name_);
  }
}

bool LineLog::IsRegular() const {
  struct stat status;
  return ::fstat(fd_.get(), &status) == 0 && S_ISREG(status.st_mode);
}

void LineLog::Cut(size_t bytes) {
  if (::ftruncate(fd_.get(), static_cast<off_t>(bytes)) != 0) {
    ThrowErrno("cannot write to " + name_);
  }
}

void LineLog::Clear() {
  if (IsRegular()) Cut(0);
}

std::string LineLog::Read() const {
  if (!IsRegular()) return "";
  std::ifstream file(path_, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

void LineLog::CutFrom(const std::function<bool(std::string_view line)>& comes_again) {
  const std::string text = Read();
  size_t begin = 0;
  const auto is_last = [&](std::string_view line) {
    try {
      return comes_again(line);
    } catch (const ConfigError& error) {
      const auto number =
          std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(begin), '\n');
      throw ConfigError(
          Str(name_, ":", number + 1,
              ": the training continues this log, but the line is no record: ", error.what()));
    }
  };
  for (size_t end; (end = text.find('\n', begin)) != std::string::npos; begin = end + 1) {
    if (is_last(std::string_view(text).substr(begin, end - begin))) break;
  }
  if (begin < text.size()) Cut(begin);
}

std::string LineLog::FirstLine() const { return Split(Read(), '\n').front(); }

void LineLog::Write(std::string_view line) { WriteAll(fd_.get(), Str(line, "\n"), name_); }

bool ComesAgain(const Value& record, const GoesOn& from) {
  const int64_t step = record["step"].as_int();
  const bool is_owed = (from.owes_evaluation && record.Has("test_loss")) ||
                       (from.owes_samples && record.Has("texts"));
  return step >= from.done || (is_owed && step == from.done - 1);
}

}  // namespace strata::launcher
