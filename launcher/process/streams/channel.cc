#include "launcher/process/streams/channel.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <array>
#include <cerrno>
#include <charconv>
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

[[noreturn]] void ThrowNoMessage(std::string_view line) {
  constexpr size_t kShown = 60;
  throw WorldError(Str("expected a message, got ", Value(line.substr(0, kShown)).ToJson(),
                       line.size() > kShown ? "..." : ""));
}

}  // namespace

// A line is "COUNT JSON", where COUNT is the number of the message's descriptors. The kernel
// delivers descriptors together with the first byte that they were sent with, or before. So all of
// them have come when the line is complete.
bool Channel::Send(const Value& body, std::span<const int> fds) {
  STRATA_CHECK(fds.size() <= kMaxFds) << fds.size();
  const std::string line = Str(fds.size(), " ", body.ToJson(), "\n");
  std::lock_guard lock(*send_mutex_);
  Ancillary ancillary;
  for (size_t sent = 0; sent < line.size();) {
    iovec bytes = {const_cast<char*>(line.data()) + sent, line.size() - sent};
    msghdr header = {};
    header.msg_iov = &bytes;
    header.msg_iovlen = 1;
    if (sent == 0 && !fds.empty()) Attach(header, ancillary, fds);
    const ssize_t count = ::sendmsg(socket_.get(), &header, MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    sent += static_cast<size_t>(count);
  }
  return true;
}

bool Channel::Receive(std::vector<Message>& messages) {
  std::array<char, 1 << 16> buffer;
  Ancillary ancillary;
  iovec bytes = {buffer.data(), buffer.size()};
  msghdr header = {};
  header.msg_iov = &bytes;
  header.msg_iovlen = 1;
  header.msg_control = ancillary.bytes.data();
  header.msg_controllen = ancillary.bytes.size();
  ssize_t count;
  do {
    count = ::recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count <= 0) return false;
  Detach(header, received_fds_);
  pending_.Add({buffer.data(), static_cast<size_t>(count)},
               [&](std::string_view line) { messages.push_back(Parse(line)); });
  return true;
}

Message Channel::Parse(std::string_view line) {
  size_t count = 0;
  const auto [space, error] = std::from_chars(line.data(), line.data() + line.size(), count);
  const bool counted = error == std::errc() && count <= received_fds_.size();
  if (!counted || space == line.data() + line.size()) ThrowNoMessage(line);
  Message message;
  try {
    message.body = Value::FromJson(line.substr(static_cast<size_t>(space - line.data()) + 1));
  } catch (const ConfigError&) {
    ThrowNoMessage(line);
  }
  if (!message.body.is_map()) ThrowNoMessage(line);
  for (; count > 0; --count) {
    message.fds.push_back(std::move(received_fds_.front()));
    received_fds_.pop_front();
  }
  return message;
}

}  // namespace strata::launcher
