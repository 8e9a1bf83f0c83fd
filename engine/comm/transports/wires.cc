// Non-blocking TCP. A message is a Header and its bytes. The rank's thread sends as much as the
// kernel takes at once; one thread for all wires of the rank sends the rest (SendQueueThread). To
// connect, a rank listens for higher ranks until all have come (Acceptor) and connects to lower
// ranks (Meeting).
#include "engine/comm/transports/wires.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <deque>
#include <iterator>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/address.h"
#include "engine/comm/meeting/secret.h"
#include "engine/comm/peer_error.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

/// The header that precedes the bytes of each message.
struct Header {
  uint32_t size = 0;
  uint32_t has_appendix = 0;
  int32_t core = -1;  // the core of the sender; -1 if it may be on another machine
};

/// The handshake of a new connection:
///   the lower rank   kNonce random bytes
///   the higher rank  a Hello, and its proof (role kVisitor)
///   the lower rank   its proof (role kHost)
/// A proof is an HMAC, with the secret, of both ends' random bytes, the role and the fields of the
/// Hello.
constexpr size_t kNonce = 16, kProof = 32;
struct Hello {
  std::array<char, kNonce> nonce = {};
  int32_t rank = -1;
  int32_t channel = -1;
};
static_assert(sizeof(Hello) == 24);
constexpr const char* kVisitor = "visitor";
constexpr const char* kHost = "host";

std::string ProofOf(const char* role, const std::string& secret, const std::string& challenge,
                    const Hello& hello, int host) {
  const std::string_view said(reinterpret_cast<const char*>(&hello), sizeof(hello));
  return HmacSha256(secret, Str("strata wire ", role, " ", host, " ", challenge, said));
}

constexpr const char* kSecretKey = "wires/secret";
std::string AddressKey(int rank) { return Str("wires/", rank); }

std::string Reason() { return std::strerror(errno); }

bool WouldBlock() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

/// The milliseconds until `end` for poll(), rounded up; 0 when the time is over.
int LeftUntil(Clock::time_point end) {
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(end - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1'000'000));
}

/// The time that is `seconds` from now. Large numbers of seconds, which the clock cannot hold, mean
/// never.
Clock::time_point EndOf(double seconds) {
  if (seconds > 1e6) return Clock::time_point::max();
  return Clock::now() + std::chrono::ceil<Clock::duration>(std::chrono::duration<double>(seconds));
}

/// A signal that poll() can wait for: its descriptor is readable from Signal() until Reset().
class EventFd {
 public:
  EventFd() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!fd_.is_open()) ThrowErrno("an eventfd");
  }
  int fd() const { return fd_.get(); }
  void Signal() const {
    const uint64_t one = 1;
    (void)!::write(fd_.get(), &one, sizeof(one));  // a full eventfd is readable already
  }
  void Reset() const {
    uint64_t count = 0;
    (void)!::read(fd_.get(), &count, sizeof(count));
  }

 private:
  Fd fd_;
};

/// The abort flag that all wires of a rank share. Its descriptor is readable after Abort().
class Alarm {
 public:
  void Abort(const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (aborted_) return;
    why_ = why;
    aborted_ = true;
    event_.Signal();  // it is never reset, so it stays readable
  }
  void ThrowIfAborted() {
    if (!aborted_) return;
    const std::lock_guard lock(mutex_);
    throw WorldError(why_);
  }
  int fd() const { return event_.fd(); }

 private:
  EventFd event_;
  std::atomic<bool> aborted_ = false;
  std::mutex mutex_;
  std::string why_;
};

/// The part of a message (header and bytes) that has not been sent or received yet.
class PendingMessage {
 public:
  PendingMessage(Header& header, void* bytes, size_t size)
      : pieces_{iovec{&header, sizeof(header)}, iovec{bytes, size}} {
    message_.msg_iov = pieces_.data();
    message_.msg_iovlen = pieces_.size();
  }
  PendingMessage(const PendingMessage&) = delete;
  PendingMessage& operator=(const PendingMessage&) = delete;

  msghdr* message() { return &message_; }
  bool done() const { return message_.msg_iovlen == 0; }
  bool header_is_done() const { return message_.msg_iovlen < pieces_.size(); }
  void Advance(size_t moved) {
    while (!done() && moved >= message_.msg_iov->iov_len) {
      moved -= message_.msg_iov->iov_len;
      ++message_.msg_iov;
      --message_.msg_iovlen;
    }
    if (done()) return;
    message_.msg_iov->iov_base = static_cast<char*>(message_.msg_iov->iov_base) + moved;
    message_.msg_iov->iov_len -= moved;
  }
  void AppendTo(std::string& bytes) const {
    for (size_t i = 0; i < message_.msg_iovlen; ++i) {
      const iovec& part = message_.msg_iov[i];
      bytes.append(static_cast<const char*>(part.iov_base), part.iov_len);
    }
  }

 private:
  std::array<iovec, 2> pieces_;
  msghdr message_ = {};
};

class TcpWire;

/// The thread that sends the bytes which the kernel did not take at once. The rank's own thread
/// cannot, since it may compute for long before it uses its wires again. The thread is started when
/// it is first needed.
class SendQueueThread {
 public:
  SendQueueThread() = default;
  ~SendQueueThread();
  SendQueueThread(const SendQueueThread&) = delete;
  SendQueueThread& operator=(const SendQueueThread&) = delete;
  /// Takes over the sending for a wire whose buffer was empty and now holds bytes. `wire` must
  /// outlive this object.
  void Add(TcpWire& wire);

 private:
  void Work();
  bool TakeAdded(std::vector<TcpWire*>& wires);

  EventFd event_;
  std::mutex mutex_;
  std::vector<TcpWire*> added_;
  bool stop_ = false;
  std::thread thread_;
};

class TcpWire : public Wire {
 public:
  TcpWire(Fd fd, const RankPlace& place, int peer, Patience patience, Alarm& alarm,
          SendQueueThread& send_thread)
      : fd_(std::move(fd)),
        rank_(place.rank),
        peer_(peer),
        is_local_(place.is_local()),
        patience_(patience),
        alarm_(alarm),
        send_thread_(send_thread) {
    const int on = 1;
    ::setsockopt(fd_.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }

  void Send(const void* bytes, size_t size, bool has_appendix) override {
    alarm_.ThrowIfAborted();
    STRATA_CHECK(size <= UINT32_MAX) << size;
    Header header = {static_cast<uint32_t>(size), has_appendix,
                     is_local_ ? Patience::ThisCore() : -1};
    PendingMessage pending(header, const_cast<void*>(bytes), size);
    const std::lock_guard lock(mutex_);
    const bool was_empty = left_.empty();
    if (was_empty && trouble_.empty()) pending.Advance(TryToSend(pending.message()));
    if (!trouble_.empty()) ThrowLost(trouble_);
    if (pending.done()) return;
    pending.AppendTo(left_);
    if (was_empty) send_thread_.Add(*this);
  }

  bool Receive(void* bytes, size_t size, double seconds) override {
    const auto end = EndOf(seconds);
    Header header;
    PendingMessage pending(header, bytes, size);
    while (!pending.done()) {
      if (!patience_.Poll(core_, [&] { return TryToReceive(pending); })) Sleep(end, seconds);
      if (pending.header_is_done() && header.size != size) {
        throw WorldError(Str("rank ", peer_, " sent ", header.size, " bytes where rank ", rank_,
                             " expected ", size));
      }
    }
    core_ = header.core;
    return header.has_appendix != 0;
  }

  bool HasCome() override {
    pollfd ready = {fd_.get(), POLLIN, 0};
    return ::poll(&ready, 1, 0) > 0;
  }

  // For the send-queue thread:

  int fd() const { return fd_.get(); }
  /// Sends from the buffer. Returns true if the buffer is empty then; if the connection is lost,
  /// the buffer is cleared.
  bool SendLeft() {
    const std::lock_guard lock(mutex_);
    iovec part = {left_.data(), left_.size()};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    left_.erase(0, TryToSend(&message));
    if (!trouble_.empty()) left_.clear();
    return left_.empty();
  }

 private:
  /// Sends and returns the number of bytes that the kernel took. Notes a failure in trouble_.
  size_t TryToSend(const msghdr* message) {
    const ssize_t sent = ::sendmsg(fd_.get(), message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (!WouldBlock()) trouble_ = Reason();
    return 0;
  }

  /// Receives the bytes that have arrived; returns false if there are none.
  bool TryToReceive(PendingMessage& pending) {
    alarm_.ThrowIfAborted();
    const ssize_t got = ::recvmsg(fd_.get(), pending.message(), MSG_DONTWAIT);
    if (got > 0) {
      pending.Advance(static_cast<size_t>(got));
      return true;
    }
    if (got == 0) ThrowLost("it closed the connection");
    if (!WouldBlock()) ThrowLost(Reason());
    return false;
  }

  void Sleep(Clock::time_point end, double seconds) {
    std::array<pollfd, 2> ready = {pollfd{fd_.get(), POLLIN, 0}, pollfd{alarm_.fd(), POLLIN, 0}};
    const int left = LeftUntil(end);
    if (::poll(ready.data(), ready.size(), left) != 0 || left > 0) return;
    ThrowLost(Str("it sent nothing for ", FormatDouble(seconds), " s"));
  }

  [[noreturn]] void ThrowLost(const std::string& trouble) {
    alarm_.ThrowIfAborted();  // the reason of an abort is the better message
    throw PeerError(Str("rank ", rank_, " lost the connection to rank ", peer_, ": ", trouble));
  }

  const Fd fd_;
  const int rank_, peer_;
  const bool is_local_;
  const Patience patience_;
  int core_ = -1;  // the core of the peer when it sent the last message
  Alarm& alarm_;
  SendQueueThread& send_thread_;
  std::mutex mutex_;     // guards left_ and trouble_, which the send-queue thread uses too
  std::string left_;     // bytes for the send-queue thread to send
  std::string trouble_;  // the reason why sending has failed; "" if it has not
};

SendQueueThread::~SendQueueThread() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  event_.Signal();
  if (thread_.joinable()) thread_.join();
}

void SendQueueThread::Add(TcpWire& wire) {
  const std::lock_guard lock(mutex_);
  added_.push_back(&wire);
  event_.Signal();
  if (!thread_.joinable()) thread_ = std::thread([this] { Work(); });
}

void SendQueueThread::Work() {
  std::vector<TcpWire*> wires;
  while (TakeAdded(wires)) {
    std::vector<pollfd> ready = {{event_.fd(), POLLIN, 0}};
    for (const TcpWire* wire : wires) ready.push_back({wire->fd(), POLLOUT, 0});
    if (::poll(ready.data(), ready.size(), -1) < 0) continue;
    size_t next = 0;
    std::erase_if(wires,
                  [&](TcpWire* wire) { return ready[++next].revents != 0 && wire->SendLeft(); });
  }
}

/// Moves the added wires to `wires`. Returns false if the thread has to stop.
bool SendQueueThread::TakeAdded(std::vector<TcpWire*>& wires) {
  const std::lock_guard lock(mutex_);
  event_.Reset();
  wires.insert(wires.end(), added_.begin(), added_.end());
  added_.clear();
  return !stop_;
}

Fd ConnectTo(const std::string& address, const std::string& port, Clock::time_point end) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), port.c_str(), &hints, &found) != 0) {
    throw WorldError(Str("\"", address, "\" is no address"));
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, &::freeaddrinfo);
  Fd fd(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.is_open()) ThrowErrno("a socket");
  int error = ::connect(fd.get(), found->ai_addr, found->ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd ready = {fd.get(), POLLOUT, 0};
    while (::poll(&ready, 1, LeftUntil(end)) < 0 && errno == EINTR) {
    }
    socklen_t size = sizeof(error);
    if (ready.revents == 0) {
      error = ETIMEDOUT;
    } else if (::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = errno;
    }
  }
  if (error != 0) throw PeerError(Str(address, ":", port, ": ", std::strerror(error)));
  return fd;
}

/// Waits until the connection has something to read. Throws PeerError at `end`.
void WaitToRead(int fd, Clock::time_point end) {
  pollfd ready = {fd, POLLIN, 0};
  while (true) {
    const int left = LeftUntil(end);
    if (left == 0) throw PeerError(std::strerror(ETIMEDOUT));
    if (::poll(&ready, 1, left) > 0) return;
  }
}

std::string ReadFrom(int fd, size_t size, Clock::time_point end) {
  std::string bytes(size, '\0');
  for (size_t heard = 0; heard < size;) {
    WaitToRead(fd, end);
    const ssize_t got = ::recv(fd, bytes.data() + heard, size - heard, 0);
    if (got < 0 && WouldBlock()) continue;
    if (got < 0) throw PeerError(Reason());
    if (got == 0) throw PeerError("it closed the connection: it does not know this job's secret");
    heard += static_cast<size_t>(got);
  }
  return bytes;
}

/// Sends the first bytes of a new connection. They fit into the kernel's buffer, so false means
/// that the connection is lost.
bool SendFirst(int fd, std::string_view bytes) {
  return ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

/// Accepts connections on a listening socket until all expected peers have come.
class Acceptor {
 public:
  Acceptor(Fd listener, int rank, const std::string& secret, std::set<WireKey> expected)
      : listener_(std::move(listener)),
        rank_(rank),
        secret_(secret),
        expected_(std::move(expected)) {}

  std::map<WireKey, Fd> Admit(Clock::time_point end) {
    while (!expected_.empty()) {
      std::vector<pollfd> ready = {{listener_.get(), POLLIN, 0}};
      for (const PendingPeer& peer : pending_peers_) ready.push_back({peer.fd.get(), POLLIN, 0});
      const int left = LeftUntil(end);
      if (left == 0) ThrowMissing();
      if (::poll(ready.data(), ready.size(), left) <= 0) continue;
      size_t next = 0;
      std::erase_if(pending_peers_,
                    [&](PendingPeer& peer) { return ready[++next].revents != 0 && Hear(peer); });
      if (ready[0].revents != 0) Open();
    }
    return std::move(admitted_);
  }

 private:
  /// The bytes that a connecting rank sends: its Hello and its proof.
  struct Answer {
    Hello hello;
    std::array<char, kProof> proof = {};
  };
  static_assert(sizeof(Answer) == sizeof(Hello) + kProof);
  struct PendingPeer {
    Fd fd;
    std::string challenge;
    Answer answer;
    size_t heard = 0;
  };

  void Open() {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!fd.is_open()) {
      const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS;
      if (is_short) ThrowErrno(Str("rank ", rank_, " cannot take a connection (ulimit -n)"));
      return;
    }
    if (pending_peers_.size() >= kMostStrangers + expected_.size()) pending_peers_.pop_front();
    std::string challenge = RandomBytes(kNonce);
    if (SendFirst(fd.get(), challenge)) pending_peers_.push_back({std::move(fd), challenge, {}, 0});
  }

  /// Reads from a new connection. Returns true when the connection is settled: admitted, refused or
  /// closed.
  bool Hear(PendingPeer& peer) {
    char* answer = reinterpret_cast<char*>(&peer.answer);
    const ssize_t got = ::recv(peer.fd.get(), answer + peer.heard, sizeof(Answer) - peer.heard, 0);
    if (got < 0 && WouldBlock()) return false;
    if (got <= 0) return true;
    peer.heard += static_cast<size_t>(got);
    if (peer.heard < sizeof(Answer)) return false;
    const auto& [hello, proof] = peer.answer;
    const WireKey key = {hello.rank, hello.channel};
    const bool knows = IsSameSecret(ProofOf(kVisitor, secret_, peer.challenge, hello, rank_),
                                    std::string_view(proof.data(), proof.size()));
    if (!knows || !expected_.contains(key)) return true;
    if (!SendFirst(peer.fd.get(), ProofOf(kHost, secret_, peer.challenge, hello, rank_))) {
      return true;
    }
    expected_.erase(key);
    admitted_[key] = std::move(peer.fd);
    return true;
  }

  [[noreturn]] void ThrowMissing() const {
    std::set<int> missing;
    for (const auto& [peer, channel] : expected_) missing.insert(peer);
    throw PeerError(Str("rank ", rank_, " waits for ", missing.size() == 1 ? "rank " : "ranks ",
                        Join(missing, ", "), ", which did not connect within the timeout"));
  }

  /// The number of connections that may be open without having answered, in addition to those of
  /// the expected ranks. A further connection closes the oldest.
  static constexpr size_t kMostStrangers = 64;

  const Fd listener_;
  const int rank_;
  const std::string& secret_;
  std::set<WireKey> expected_;
  std::deque<PendingPeer> pending_peers_;
  std::map<WireKey, Fd> admitted_;
};

/// Makes the connections of one rank: it listens for higher ranks and connects to lower ranks. A
/// rank waits only for the answers of lower ranks before it accepts, so there is no circular wait.
class Meeting {
 public:
  Meeting(const RankPlace& place, const Board& board, double timeout)
      : place_(place),
        board_(board),
        end_(Clock::now() + std::chrono::ceil<Clock::duration>(
                                std::chrono::duration<double>(std::min(timeout, 1e6)))),
        secret_(place.secret.empty() ? ShareSecret() : place.secret) {}

  std::map<WireKey, Fd> Connect(const std::set<WireKey>& wanted) {
    std::set<WireKey> expected;
    std::ranges::copy_if(wanted, std::inserter(expected, expected.end()),
                         [&](const WireKey& key) { return key.first > place_.rank; });
    Fd listener;
    if (!expected.empty()) listener = Listen();
    std::map<WireKey, Fd> connections;
    for (const WireKey& key : wanted) {
      if (key.first < place_.rank) connections[key] = Visit(key);
    }
    if (expected.empty()) return connections;
    Acceptor acceptor(std::move(listener), place_.rank, secret_, std::move(expected));
    connections.merge(acceptor.Admit(end_));
    return connections;
  }

 private:
  std::string ShareSecret() const {
    if (place_.rank != 0) return board_.get(kSecretKey);
    const std::string secret = RandomBytes(kSecretBytes);
    board_.set(kSecretKey, secret);
    return secret;
  }

  Fd Listen() const {
    const std::string address = OwnAddress(place_);
    const ListeningSocket socket = ListenAtAddress(address);
    board_.set(AddressKey(place_.rank), Str(socket.port, " ", address));
    return Fd(socket.fd);
  }

  Fd Visit(const WireKey& key) const {
    const std::vector<std::string> there = Split(board_.get(AddressKey(key.first)), ' ');
    STRATA_CHECK(there.size() == 2);
    try {
      Fd fd = ConnectTo(there[1], there[0], end_);
      const std::string challenge = ReadFrom(fd.get(), kNonce, end_);
      Hello hello = {{}, place_.rank, key.second};
      std::ranges::copy(RandomBytes(kNonce), hello.nonce.begin());
      const std::string_view said(reinterpret_cast<const char*>(&hello), sizeof(hello));
      const std::string proof = ProofOf(kVisitor, secret_, challenge, hello, key.first);
      if (!SendFirst(fd.get(), Str(said, proof))) throw PeerError(Reason());
      const std::string answer = ReadFrom(fd.get(), kProof, end_);
      if (!IsSameSecret(answer, ProofOf(kHost, secret_, challenge, hello, key.first))) {
        throw PeerError("what listens there does not know this job's secret");
      }
      return fd;
    } catch (const WorldError& error) {
      throw PeerError(Str("rank ", place_.rank, " cannot connect to rank ", key.first, " at ",
                          there[1], ": ", error.what()));
    }
  }

  const RankPlace& place_;
  const Board& board_;
  const Clock::time_point end_;
  const std::string secret_;
};

class TcpWires : public Wires {
 public:
  TcpWires(const RankPlace& place, std::map<WireKey, Fd> connections, Patience patience) {
    for (auto& [key, fd] : connections) {
      wires_[key] = std::make_unique<TcpWire>(std::move(fd), place, key.first, patience, alarm_,
                                              send_thread_);
    }
  }
  Wire* Find(int peer, int channel) override {
    const auto found = wires_.find({peer, channel});
    return found == wires_.end() ? nullptr : found->second.get();
  }
  void Abort(const std::string& why) override { alarm_.Abort(why); }

 private:
  Alarm alarm_;
  std::map<WireKey, std::unique_ptr<TcpWire>> wires_;
  SendQueueThread send_thread_;  // declared last, because its thread uses the wires
};

}  // namespace

std::unique_ptr<Wires> Wires::Connect(const RankPlace& place, const std::set<WireKey>& wanted,
                                      const Board& board, Patience patience, double timeout) {
  return std::make_unique<TcpWires>(place, Meeting(place, board, timeout).Connect(wanted),
                                    patience);
}

}  // namespace strata
