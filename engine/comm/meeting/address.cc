// getaddrinfo() turns names into addresses. To find this machine's address on the route to a host,
// a UDP socket is connected to the host, which sends nothing, and the kernel is asked for the
// socket's own address.
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
#include "engine/base/machine/identity.h"
#include "engine/base/text.h"
#include "engine/comm/meeting/discovery.h"

namespace strata {
namespace {

using Addresses = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

/// The addresses of `host`; null if the host is unknown. An empty `host` means all addresses of
/// this machine.
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

/// Returns a socket that listens at `address`, or -1 with errno set.
int ListenAt(const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  // Without SO_REUSEADDR the port of a job that has just ended could not be used for some time.
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address.ai_family ==
      AF_INET6) {  // so that listening on all IPv6 addresses includes those of IPv4
    const int off = 0;
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (::bind(fd, address.ai_addr, address.ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) {
    return fd;
  }
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

/// The address as text: "192.168.0.7"; "" if the kernel does not know the family.
std::string Numeric(const sockaddr& address, socklen_t size) {
  std::array<char, NI_MAXHOST> text = {};
  const int failed =
      ::getnameinfo(&address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
  return failed ? "" : text.data();
}

using Interfaces = std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)>;

Interfaces ReadInterfaces() {
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) list = nullptr;
  return Interfaces(list, &::freeifaddrs);
}

/// The first IPv4 address of the interfaces for which fits(interface) is true, else their first
/// IPv6 address; "" if there is none.
template <class Fits>
std::string AddressOfInterface(const Fits& fits) {
  const Interfaces list = ReadInterfaces();
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list.get(); entry; entry = entry->ifa_next) {
      if (!entry->ifa_addr || entry->ifa_addr->sa_family != family || !fits(*entry)) continue;
      return Numeric(*entry->ifa_addr,
                     family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
    }
  }
  return "";
}

/// True for a link-local address (fe80::), which is valid on one network link only and needs the
/// name of its interface.
bool IsLinkLocal(const sockaddr& address) {
  return address.sa_family == AF_INET6 &&
         IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

/// The first address of this machine's host name that other machines can reach and where a socket
/// can listen; "" if there is none. Debian's /etc/hosts maps the host name to 127.0.1.1, which
/// means each machine itself, so loopback addresses are skipped.
std::string AddressOfName() {
  const std::string name = HostName();
  const Addresses named = name.empty() ? Addresses(nullptr, &::freeaddrinfo) : Resolve(name, 0);
  for (const addrinfo* address = named.get(); address; address = address->ai_next) {
    if (IsLoopback(*address->ai_addr) || IsLinkLocal(*address->ai_addr)) continue;
    const int fd = ListenAt(*address);
    if (fd < 0) continue;
    ::close(fd);
    return Numeric(*address->ai_addr, address->ai_addrlen);
  }
  return "";
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
  for (const int family : {AF_INET6, AF_INET}) {
    for (const addrinfo* address = all.get(); address; address = address->ai_next) {
      if (address->ai_family != family) continue;
      const int fd = ListenAt(*address);
      if (fd >= 0) return {.fd = fd, .port = PortOf(fd), .everywhere = true};
      const bool is_missing = errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL;
      if (!is_missing) ThrowCannotListen(host, place.store_port);
    }
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
    const std::string name = Split(interface, ',').front();
    const std::string address =
        AddressOfInterface([&](const ifaddrs& entry) { return entry.ifa_name == name; });
    if (!address.empty()) return address;
    throw WorldError(Str("GLOO_SOCKET_IFNAME names ", interface,
                         ": this machine has no such interface, or it has no address"));
  }
  const bool is_here = IsLoopback(place.store_host);  // a PyTorchJob gives rank 0's pod such a host
  std::string address = is_here ? "" : AddressTowards(place.store_host, place.store_port);
  if (address.empty()) address = AddressOfName();
  if (address.empty()) {
    address = AddressOfInterface([](const ifaddrs& entry) {
      const bool works = (entry.ifa_flags & IFF_UP) && (entry.ifa_flags & IFF_RUNNING);
      return works && !IsLoopback(*entry.ifa_addr) && !IsLinkLocal(*entry.ifa_addr);
    });
  }
  if (!address.empty()) return address;
  if (is_here) return "127.0.0.1";  // without a network all ranks must be on this machine
  throw WorldError(Str("this machine has no address that the others reach: \"", place.store_host,
                       "\" and its own name lead to itself (127.0.1.1 in /etc/hosts?); say ",
                       "rank 0's address on their network, --master_addr=ADDRESS, or the ",
                       "interface, GLOO_SOCKET_IFNAME=NAME"));
}

std::string AddressTowards(const std::string& host, int port) {
  const Addresses there = Resolve(host, port);
  const bool asks_for_loopback = IsLoopback(host);
  for (const addrinfo* address = there.get(); address; address = address->ai_next) {
    const int fd = ::socket(address->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    sockaddr_storage here = {};
    socklen_t size = sizeof(here);
    auto* plain = reinterpret_cast<sockaddr*>(&here);
    const bool known = fd >= 0 && ::connect(fd, address->ai_addr, address->ai_addrlen) == 0 &&
                       ::getsockname(fd, plain, &size) == 0;
    if (fd >= 0) ::close(fd);
    if (known && (asks_for_loopback || !IsLoopback(*plain))) return Numeric(*plain, size);
  }
  return "";
}

}  // namespace strata
