// OutputQueue: writes without blocking, without changing descriptors that other processes share.
#include "launcher/process/output_queue.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

/// Opens a pipe or a terminal again, so that O_NONBLOCK applies only to our descriptor; on a
/// duplicate the flag would affect the shell too. For other files, or if opening is not allowed,
/// returns a duplicate.
Fd OpenAgain(int fd) {
  struct stat what;
  if (::fstat(fd, &what) == 0 && (S_ISFIFO(what.st_mode) || S_ISCHR(what.st_mode))) {
    constexpr int kFlags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    Fd again(::open(PathOfDescriptor(fd).c_str(), kFlags));
    if (again.is_open()) return again;
  }
  return Fd(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

}  // namespace

void OutputQueue::Write(int fd, std::string_view text, const char* name) {
  texts_.push_back({fd, name, std::string(text)});
  bytes_ += text.size();
  Flush();
  if (waits_) WaitUntilEmpty();
}

void OutputQueue::set_waits(bool waits) {
  waits_ = waits;
  failure_.reset();
  if (waits_) WaitUntilEmpty();
  nonblocking_.clear();
}

void OutputQueue::Flush() {
  while (!texts_.empty()) {
    Text& text = texts_.front();
    const ssize_t count = WriteSome(text);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return;
    if (count < 0) {
      OnFailure(errno);
      continue;
    }
    bytes_ -= static_cast<size_t>(count);
    text.rest.erase(0, static_cast<size_t>(count));
    if (text.rest.empty()) texts_.pop_front();
  }
}

void OutputQueue::AddTo(std::vector<Source>& sources) {
  if (!empty()) sources.push_back({Descriptor(texts_[0].fd), [this] { Flush(); }, POLLOUT});
}

int OutputQueue::Descriptor(int fd) {
  if (may_block()) return fd;
  Fd& again = nonblocking_[fd];
  if (!again.is_open()) again = OpenAgain(fd);
  return again.get();
}

ssize_t OutputQueue::WriteSome(const Text& text) {
  const int fd = Descriptor(text.fd);
  const int flags = MSG_NOSIGNAL | (may_block() ? 0 : MSG_DONTWAIT);
  const ssize_t count = ::send(fd, text.rest.data(), text.rest.size(), flags);
  if (count >= 0 || errno != ENOTSOCK) return count;
  return ::write(fd, text.rest.data(), text.rest.size());
}

void OutputQueue::OnFailure(int error) {
  const std::string what = Str("cannot write to ", texts_[0].name, ": ", std::strerror(error));
  Drop(texts_[0].fd);
  if (deadline_ != kNever) return;
  if (waits_) throw WorldError(what);
  if (!failure_) failure_ = {what, error == EPIPE};
}

void OutputQueue::WaitUntilEmpty() {
  for (Flush(); !empty(); Flush()) {
    if (MonotonicSeconds() >= deadline_) {
      Drop(texts_[0].fd);
      continue;
    }
    std::vector<Source> sources;
    AddTo(sources);
    WaitFor(sources, deadline_);
  }
}

void OutputQueue::Drop(int fd) {
  std::erase_if(texts_, [fd](const Text& text) { return text.fd == fd; });
  bytes_ = 0;
  for (const Text& text : texts_) bytes_ += text.rest.size();
}

}  // namespace strata::launcher
