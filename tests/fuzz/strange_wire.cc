#include "tests/fuzz/strange_wire.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/comm/place.h"
#include "engine/comm/transports/patience.h"
#include "engine/comm/transports/wires.h"

namespace strata::fuzz {
namespace {

constexpr double kPatience = 60;  // seconds; never reached
const WireKey kToFirst = {0, 0}, kToSecond = {1, 0};

RankPlace PlaceOf(int rank) {
  RankPlace place;
  place.rank = rank;
  place.world_size = place.local_world_size = 2;
  place.secret = "a secret of sixteen bytes or more";
  return place;
}

sockaddr_in Loopback(int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

void Say(int fd, std::string_view bytes) {
  (void)!::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

/// Ends the program with the reason: the other rank would wait for this one until kPatience.
std::unique_ptr<Wires> ConnectOrAbort(int rank, const WireKey& wanted, const Board& board) {
  try {
    return Wires::Connect(PlaceOf(rank), {wanted}, board, Patience::Of(2), kPatience);
  } catch (const Error& error) {
    std::fprintf(stderr, "rank %d: %s\n", rank, error.what());
    std::abort();
  }
}

void Talk(int port, std::string_view bytes) {
  const Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in address = Loopback(port);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    Say(fd.get(), bytes);
}

}  // namespace

void MeetStrangeGuest(std::string_view bytes) {
  std::promise<std::string> told;
  std::shared_future<std::string> address = told.get_future().share();
  const Board board = {.set =
                           [&](const std::string&, const std::string& text) {
                             Talk(std::stoi(text), bytes);
                             told.set_value(text);
                           },
                       .get = [address](const std::string&) { return address.get(); }};
  auto second = std::async(std::launch::async, [&] { return ConnectOrAbort(1, kToFirst, board); });
  const auto first = ConnectOrAbort(0, kToSecond, board);
  const auto other = second.get();
  char sent = 'x', got = 0;
  other->Find(0, 0)->Send(&sent, 1);
  first->Find(1, 0)->Receive(&got, 1);
  if (got != sent) std::abort();
}

void MeetStrangeHost(std::string_view bytes) {
  const Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = Loopback(0);
  socklen_t size = sizeof(address);
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), any, size) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), any, &size) != 0) {
    ThrowErrno("a listening socket");
  }
  std::thread host([&] {
    const Fd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Say(fd.get(), bytes);
    ::shutdown(fd.get(), SHUT_WR);
    char heard[64];
    while (::recv(fd.get(), heard, sizeof(heard), 0) > 0) continue;
  });
  const Board board = {
      .set = [](const std::string&, const std::string&) {},
      .get = [&](const std::string&) { return Str(ntohs(address.sin_port), " 127.0.0.1"); }};
  const auto connect = [&] {
    return Wires::Connect(PlaceOf(1), {kToFirst}, board, Patience::Of(2), kPatience) != nullptr;
  };
  bool is_taken = false;
  std::string trouble;
  try {
    is_taken = connect();
  } catch (const Error& error) {
    trouble = error.what();
  }
  host.join();
  if (is_taken) std::abort();
  throw WorldError(trouble);
}

}  // namespace strata::fuzz
