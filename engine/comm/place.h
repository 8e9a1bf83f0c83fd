// RankPlace: which rank of a job a process is, and where the ranks meet. Torch-free.
#pragma once

#include <string>

namespace strata {

class FlightRing;

/// Strata's launcher makes it, or Discover() (discovery.h) reads it from the environment that an
/// outside launcher (torchrun, mpirun and the like) has set.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  ///< the rank's number on this machine; also chooses its GPU (UseDevice())
  int local_world_size = 1;  ///< the number of ranks on this machine, which share its cores

  // The store where the ranks meet (rendezvous.h). Rank 0 serves it unless a field says otherwise.
  std::string store_host = "127.0.0.1";
  int store_port = 0;
  int store_fd = -1;  ///< rank 0: a listening socket bound by the launcher; -1 = bind store_port
  bool store_is_served = false;  ///< true: an outside launcher serves it, as torchrun's agent does
  std::string store_file;  ///< the path of a file that is the store and that all ranks see; "" = a
                           ///< TCP store
  std::string job_id;      ///< separates jobs that share one store; "" = the store is not shared
  /// The secret that only the ranks of the job know (secret.h). It comes from the process that
  /// starts the rank, never over the store. "" = an outside launcher starts the ranks and
  /// $STRATA_SECRET is not set.
  std::string secret;
  FlightRing* flight =
      nullptr;  ///< the ring in which the rank records what it does; null = a private one

  /// True when all ranks are on this machine. Then sockets listen on loopback only.
  bool is_local() const { return world_size == local_world_size; }
};

}  // namespace strata
