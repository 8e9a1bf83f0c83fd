// Splits bytes into lines, and reads lines from a process's output.
#include "launcher/process/lines.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/process/pipes.h"

namespace strata::launcher {

void LineSplitter::Add(std::string_view bytes, const Take& take) {
  // A long line is searched only once. After a throw, pending_ may contain whole lines.
  size_t start = 0, searched = std::exchange(searched_, 0);
  pending_.append(bytes);
  try {
    for (size_t end; (end = pending_.find('\n', searched)) != std::string::npos;) {
      const std::string_view line = std::string_view(pending_).substr(start, end - start);
      start = searched = end + 1;
      take(line);
    }
  } catch (...) {
    pending_.erase(0, start);
    throw;
  }
  pending_.erase(0, start);
  searched_ = pending_.size();
  if (pending_.size() <= longest_) return;
  if (overlong_ == Overlong::kThrow)
    throw WorldError(Str("a line has more than ", longest_, " bytes, which no message has"));
  Finish(take);
}

void LineSplitter::Finish(const Take& take) {
  const std::string rest = std::exchange(pending_, "");
  searched_ = 0;
  if (!rest.empty()) take(rest);
}

OutputStream::OutputStream(Fd fd, LineSplitter::Take take)
    : fd_(std::move(fd)), take_(std::move(take)) {
  SetNonBlocking(fd_.get());
}

bool OutputStream::Read() {
  std::array<char, 1 << 16> buffer;
  const ssize_t count = ::read(fd_.get(), buffer.data(), buffer.size());
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return false;
  if (count > 0) {
    lines_.Add({buffer.data(), static_cast<size_t>(count)}, take_);
    return true;
  }
  fd_.Close();
  lines_.Finish(take_);
  return false;
}

}  // namespace strata::launcher
