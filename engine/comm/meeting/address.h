// Addresses of this machine: where rank 0 listens for the other ranks, and where other ranks reach
// this one. Torch-free.
#pragma once

#include <string>

#include "engine/comm/place.h"

namespace strata {

/// A bound, listening TCP socket, which exec closes. The caller who gets it closes it.
struct ListeningSocket {
  int fd = -1;
  int port = 0;
  bool everywhere = false;  ///< on all addresses of this machine
};

/// Listens for the ranks of a job at place.store_port (0 = the kernel chooses). The address is
/// 127.0.0.1 when all ranks are on this machine, else that of store_host. If store_host is no
/// address of this machine (a Kubernetes service, a machine behind NAT), or a loopback address that
/// other machines cannot reach, the socket listens on all addresses. Throws WorldError that names
/// host and port.
ListeningSocket ListenForRanks(const RankPlace& place);

/// Listens on a numeric address of this machine, at a port that the kernel chooses. Throws
/// WorldError when that fails.
ListeningSocket ListenAtAddress(const std::string& address);

/// The numeric address where the other ranks of the job reach this one. The first that applies:
/// 1. 127.0.0.1, when all ranks are on this machine;
/// 2. the address of the interface $GLOO_SOCKET_IFNAME, as in PyTorch;
/// 3. this machine's address on the route to the store;
/// 4. the address of this machine's host name, else of its first interface that works.
/// Of 3 and 4 no loopback address counts, as a host name has in Debian's /etc/hosts: the others
/// would reach themselves there. Where none is left it is 127.0.0.1 if the store is at loopback by
/// its address, else WorldError; so too when $GLOO_SOCKET_IFNAME names no interface of this
/// machine.
std::string OwnAddress(const RankPlace& place);

/// The numeric address that this machine uses to reach `host`, or "" when there is no route or no
/// such host, or where a name leads to this machine's loopback. Sends nothing to `host`.
std::string AddressTowards(const std::string& host, int port);

}  // namespace strata
