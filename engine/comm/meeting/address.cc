// Names become addresses by getaddrinfo(). The kernel tells which of ours leads to a host.
#include "engine/comm/meeting/address.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// The addresses of `host`; null for an unknown host. An empty `host` means all addresses of this
/// machine.
Addresses Resolve(const std::string& host, int port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const std::string service = std::to_string(port);
  const char* name = host.empty() ? nullptr : host.c_str();
  if (::getaddrinfo(name, service.c_str(), &hints, &found) != 0) found = nullptr;
  return Addresses(found, &::freeaddrinfo);
}

bool IsLoopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& ip = reinterpret_cast<const sockaddr_in&>(address);
    return ntohl(ip.sin_addr.s_addr) >> 24 == 127;
  }
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

int PortOf(int fd) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(address).sin6_port
                                             : reinterpret_cast<sockaddr_in&>(address).sin_port);
}

/// A socket that listens at `address`, or -1 with errno.
int ListenAt(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  // The port of a job that has just ended can be used again at once.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

/// "192.168.0.7"; "" when the kernel does not know the family.
std::string Numeric(const sockaddr& address, socklen_t size) {
  std::array<char, NI_MAXHOST> text = {};
  const int failed =
      ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed ? "" : text.data();
}

/// The first IPv4 address of an interface, else its first IPv6 address.
std::string AddressOfInterface(const std::string& interface) {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) list = nullptr;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(list, &::freeifaddrs);
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
      const bool fits = entry->ifa_addr && entry->ifa_addr->sa_family == family;
      if (!fits || entry->ifa_name != interface) continue;
      return Numeric(*entry->ifa_addr,
                     family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    }
  }
  throw WorldError(Str("GLOO_SOCKET_IFNAME names ", interface,
                       ": this machine has no such interface, or it has no address"));
}

/// The first address of this machine's host name at which a socket can listen; else loopback.
std::string AddressOfName() {
  std::array<char, 256> name = {};
  ::gethostname(name.data(), name.size() - 1);
  const Addresses named = name[0] ? Resolve(name.data(), 0) : Addresses(nullptr, &::freeaddrinfo);
  for (const addrinfo* address = named.get(); address; address = address->ai_next) {
    const int fd = ListenAt(*address);
    if (fd < 0) continue;
    ::close(fd);
    return Numeric(*address->ai_addr, address->ai_addrlen);
  }
  return "127.0.0.1";
}

[[noreturn]] void ThrowCannotListen(const std::string& host, int port) {
  throw WorldError(Str("rank 0 cannot listen at ", host, ":", port, ": ", std::strerror(errno),
                       errno == EADDRINUSE ? "; another job may be there, say another port with "
                                             "--master_port or MASTER_PORT"
                                           : ""));
}

}  // namespace

ListeningSocket ListenForRanks(const RankPlace& place) {
  const std::string host = place.is_local() ? "127.0.0.1" : place.store_host;
  const Addresses named = Resolve(host, place.store_port);
  for (const addrinfo* address = named.get(); address; address = address->ai_next) {
    if (!place.is_local() && IsLoopback(*address->ai_addr)) continue;
    const int fd = ListenAt(*address);
    if (fd >= 0) return {.fd = fd, .port = PortOf(fd)};
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) ThrowCannotListen(host, place.store_port);
  }
  const Addresses all = Resolve("", place.store_port);
  for (const addrinfo* address = all.get(); address; address = address->ai_next) {
    const int fd = ListenAt(*address);
    if (fd >= 0) return {.fd = fd, .port = PortOf(fd), .everywhere = true};
    if (errno != EAFNOSUPPORT) break;
  }
  ThrowCannotListen(host, place.store_port);
}

ListeningSocket ListenAtAddress(const std::string& address) {
  STRATA_CHECK(!address.empty());  // "" would mean all addresses
  const Addresses own = Resolve(address, 0);
  const int fd = own ? ListenAt(*own) : -1;
  if (fd >= 0) return {.fd = fd, .port = PortOf(fd)};
  throw WorldError(
      Str("cannot listen at ", address, ": ", own ? std::strerror(errno) : "it is no address"));
}

std::string OwnAddress(const RankPlace& place) {
  if (place.is_local()) return "127.0.0.1";
  if (const char* interface = std::getenv("GLOO_SOCKET_IFNAME")) {
    return AddressOfInterface(Split(interface, ',').front());
  }
  const std::string address = AddressTowards(place.store_host, place.store_port);
  const Addresses route = Resolve(address, 0);
  const bool reaches_others = !address.empty() && route && !IsLoopback(*route->ai_addr);
  return reaches_others ? address : AddressOfName();
}

std::string AddressTowards(const std::string& host, int port) {
  const Addresses there = Resolve(host, port);
  for (const addrinfo* address = there.get(); address; address = address->ai_next) {
    const int fd = ::socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage here = {};
    socklen_t size = sizeof(here);
    auto* plain = reinterpret_cast<sockaddr*>(&here);
    const bool known = fd >= 0 && ::connect(fd, address->ai_addr, address->ai_addrlen) == 0 &&
                       ::getsockname(fd, plain, &size) == 0;
    if (fd >= 0) ::close(fd);
    if (known) return Numeric(*plain, size);
  }
  return "";
}

}  // namespace strata
