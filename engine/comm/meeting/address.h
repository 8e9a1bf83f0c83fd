// Finds the addresses of this machine: where rank 0 listens for the other ranks, and where the
// other ranks reach this one. Torch-free.
#pragma once

#include <string>

#include "engine/comm/place.h"

namespace strata {

/// A bound and listening TCP socket, which is closed on exec. The caller must close `fd`.
struct ListeningSocket {
  int fd = -1;
  int port = 0;
  bool everywhere = false;  ///< true if it listens on all addresses of this machine
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

/// The numeric address at which the other ranks of the job reach this rank. The first that applies:
/// 1. 127.0.0.1, when all ranks are on this machine;
/// 2. the address of the interface $GLOO_SOCKET_IFNAME, as in PyTorch;
/// 3. this machine's address on the route to the store;
/// 4. the address of this machine's host name, else of its first interface that works.
/// Rules 3 and 4 skip loopback addresses (Debian's /etc/hosts gives one to the host name), since
/// other machines would reach themselves there. If no address is left: returns 127.0.0.1 when
/// place.store_host is loopback, else throws WorldError. Also throws WorldError when this machine
/// has no interface of the name $GLOO_SOCKET_IFNAME, or that interface has no address.
std::string OwnAddress(const RankPlace& place);

/// The numeric address from which this machine would reach `host`. "" if there is no route or no
/// such host, or if `host` is a name that leads to this machine's loopback. Sends nothing to
/// `host`.
std::string AddressTowards(const std::string& host, int port);

}  // namespace strata
