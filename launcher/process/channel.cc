// Channel: lines of JSON. A message with descriptors says in its entry "fds" how many there are.
#include "launcher/process/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

/// Space for the ancillary data (descriptors) of one message.
struct Ancillary {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int) * Channel::kMaxFds)> bytes;
};

void Attach(msghdr& header, Ancillary& ancillary, std::span<const int> fds) {
  header.msg_control = ancillary.bytes.data();
  header.msg_controllen = CMSG_SPACE(fds.size_bytes());
  cmsghdr* part = CMSG_FIRSTHDR(&header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(part), fds.data(), fds.size_bytes());
}

void Detach(msghdr& header, std::deque<Fd>& fds) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int fd;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      fds.emplace_back(fd);
    }
  }
}

/// sendmsg(), or write() if the descriptor is not a socket.
ssize_t SendSome(int fd, std::string_view bytes, std::span<const int> fds) {
  iovec piece = {const_cast<char*>(bytes.data()), bytes.size()};
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  Ancillary ancillary;
  if (!fds.empty()) Attach(header, ancillary, fds);
  const ssize_t count = ::sendmsg(fd, &header, MSG_NOSIGNAL);
  return count < 0 && errno == ENOTSOCK ? ::write(fd, bytes.data(), bytes.size()) : count;
}

/// recvmsg(), or read() if the descriptor is not a socket.
ssize_t ReceiveSome(int fd, std::span<char> buffer, std::deque<Fd>& fds) {
  iovec piece = {buffer.data(), buffer.size()};
  Ancillary ancillary;
  msghdr header = {};
  header.msg_iov = &piece;
  header.msg_iovlen = 1;
  header.msg_control = ancillary.bytes.data();
  header.msg_controllen = ancillary.bytes.size();
  const ssize_t count = ::recvmsg(fd, &header, MSG_CMSG_CLOEXEC);
  if (count < 0 && errno == ENOTSOCK) return ::read(fd, buffer.data(), buffer.size());
  if (count > 0) Detach(header, fds);
  if (count > 0 && (header.msg_flags & MSG_CTRUNC)) {
    throw WorldError("a process's channels did not arrive: too many open files (ulimit -n)");
  }
  return count;
}

}  // namespace

Value TypedMessage(const char* type) { return Value::MakeMap({{"type", Value(type)}}); }

void Channel::StopWaiting() {
  SetNonBlocking(in_.get());
  if (out_.is_open()) SetNonBlocking(out_.get());
}

void Channel::CloseOutput() {
  can_send_ = false;
  queue_.clear();
  out_.Close();
}

// The kernel delivers descriptors no later than the first byte that they were sent with. So when a
// line is complete, all of its descriptors have arrived.
bool Channel::Send(const Value& body, std::span<const int> fds) {
  STRATA_CHECK(fds.size() <= kMaxFds) << fds.size();
  Value message = body;
  if (!fds.empty()) message.Set("fds", static_cast<int64_t>(fds.size()));
  std::string line = message.ToJson() + "\n";
  std::lock_guard lock(*mutex_);
  if (!can_send_) return false;
  if (!fds.empty()) {
    STRATA_CHECK(queue_.empty());
    ssize_t sent;
    while ((sent = SendSome(in_.get(), line, fds)) < 0 && errno == EINTR) continue;
    line.erase(0, static_cast<size_t>(std::max<ssize_t>(sent, 0)));
    can_send_ = sent > 0;
  }
  queue_ += line;
  FlushLocked();
  return can_send_;
}

void Channel::Flush() {
  std::lock_guard lock(*mutex_);
  FlushLocked();
}

void Channel::FlushLocked() {
  while (can_send_ && !queue_.empty()) {
    const ssize_t sent = SendSome(out_fd(), queue_, {});
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) return CloseOutput();
    queue_.erase(0, static_cast<size_t>(sent));
  }
}

void Channel::AddTo(std::vector<Source>& sources, std::function<void()> read) {
  if (is_open()) sources.push_back({fd(), std::move(read)});
  if (waiting() > 0) sources.push_back({out_fd(), [this] { Flush(); }, POLLOUT});
}

bool Channel::Receive(std::vector<Message>& messages) {
  std::array<char, 1 << 16> buffer;
  ssize_t count;
  while ((count = ReceiveSome(in_.get(), buffer, received_fds_)) < 0 && errno == EINTR) continue;
  if (count < 0 && errno == EAGAIN) return true;
  if (count <= 0) return false;
  lines_.Add({buffer.data(), static_cast<size_t>(count)},
             [&](std::string_view line) { messages.push_back(Parse(line)); });
  return true;
}

Message Channel::Parse(std::string_view line) {
  constexpr size_t kShown = 60;
  Message message;
  try {
    message.body = Value::FromJson(line);
  } catch (const ConfigError&) {
    // The throw below reports it.
  }
  const Value* count = message.body.is_map() ? message.body.Find("fds") : nullptr;
  const int64_t fds = count == nullptr ? 0 : count->is_int() ? count->as_int() : -1;
  const bool whole = message.body.is_map() && message.body["type"].is_string() && fds >= 0 &&
                     fds <= static_cast<int64_t>(received_fds_.size());
  if (!whole) {
    throw WorldError(Str("expected a message, got ", Value(line.substr(0, kShown)).ToJson(),
                         line.size() > kShown ? "..." : ""));
  }
  for (int64_t i = 0; i < fds; ++i) {
    message.fds.push_back(std::move(received_fds_.front()));
    received_fds_.pop_front();
  }
  return message;
}

}  // namespace strata::launcher
