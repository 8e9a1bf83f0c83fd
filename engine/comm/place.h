// Where a process stands in a job of several processes. Torch-free.
#pragma once

#include <string>

namespace strata {

/// Made by the launcher, or read from the environment of another starter (discovery.h).
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< on this machine: chooses the GPU
  int local_world_size = 1;  ///< ranks on this machine: share its cores

  // The store where the ranks meet; rank 0 serves it unless told otherwise.
  std::string store_host = "127.0.0.1";
  int store_port = 0;
  int store_fd = -1;  ///< rank 0: a listening socket bound by the launcher; -1 = bind store_port
  bool store_is_served = false;  ///< by the starter, as torchrun's agent does; no rank serves it
  std::string store_file;        ///< the store is this file, which all ranks see; "" = it is not
  std::string job_id;            ///< keeps jobs apart that meet at one store; "" where none can

  /// All ranks are on this machine: nothing listens on another address than loopback.
  bool is_local() const { return world_size == local_world_size; }
};

}  // namespace strata
