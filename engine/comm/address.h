// Addresses of this machine: where rank 0 listens for the others, and from where a rank is reached.
// Torch-free.
#pragma once

#include <string>

#include "engine/comm/place.h"

namespace strata {

/// A bound, listening TCP socket, closed by exec. Whoever gets it closes it.
struct ListeningSocket {
  int fd = -1;
  int port = 0;
  bool everywhere = false;  ///< on all addresses of this machine
};

/// Listens for the ranks of a job at place.store_port (0 = the kernel chooses): on 127.0.0.1 when
/// all are on this machine, else on the address that store_host is. Where that name is no address
/// of this machine (a Kubernetes service, a machine behind NAT), or one that the others cannot
/// reach (loopback), listens on all addresses. Throws WorldError that names host and port.
ListeningSocket ListenForRanks(const RankPlace& place);

/// Listens on a numeric address of this machine, at a port that the kernel chooses. Throws
/// WorldError.
ListeningSocket ListenAtAddress(const std::string& address);

/// The numeric address where the other ranks of the job reach this one: 127.0.0.1 when all are on
/// this machine; else that of the interface $GLOO_SOCKET_IFNAME, which torch's users name; else the
/// one that the route to the store has; else, where the store is at loopback or is a file, the one
/// that this machine's name stands for. Throws WorldError when there is no such interface.
std::string OwnAddress(const RankPlace& place);

/// The numeric address from which this machine reaches `host`; "" when nothing is known. Sends
/// nothing.
std::string AddressTowards(const std::string& host, int port);

}  // namespace strata
