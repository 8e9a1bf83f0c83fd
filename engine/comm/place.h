// RankPlace: which rank of a job a process is, and where the ranks meet. Torch-free.
#pragma once

#include <string>

namespace strata {

class FlightRing;

/// Our launcher makes it, or it is read from the environment that an outside launcher (torchrun,
/// mpirun and the like) has set (discovery.h).
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< counts the ranks of this machine; it is also the GPU's number
  int local_world_size = 1;  ///< how many ranks are on this machine; they share its cores

  // The store where the ranks meet (rendezvous.h). Rank 0 serves it unless a field says otherwise.
  std::string store_host = "127.0.0.1";
  int store_port = 0;
  int store_fd = -1;  ///< rank 0: a listening socket bound by the launcher; -1 = bind store_port
  bool store_is_served = false;  ///< an outside launcher serves it, as torchrun's agent does
  std::string store_file;        ///< the store is this file, which all ranks see; "" = a TCP store
  std::string job_id;            ///< tells jobs apart that share one store; "" = no job shares it
  /// What the ranks of the job know and nobody else does (secret.h). It comes with the job, never
  /// over the store. "" = an outside launcher starts the ranks, and $STRATA_SECRET gave none.
  std::string secret;
  FlightRing* flight = nullptr;  ///< where the rank notes what it does; null = for itself alone

  /// True when all ranks are on this machine. Then sockets listen on loopback only.
  bool is_local() const { return world_size == local_world_size; }
};

}  // namespace strata
