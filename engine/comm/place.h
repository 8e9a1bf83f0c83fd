// Where a process stands in a job of several processes. Torch-free.
#pragma once

#include <string>

namespace strata {

/// Made by the launcher, or read from the environment of another starter.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;        ///< on this machine: chooses the GPU
  int local_world_size = 1;  ///< ranks on this machine: share its cores
  std::string store_host = "127.0.0.1";
  int store_port = 0;
  int store_fd = -1;  ///< rank 0: a listening socket bound by the launcher; -1 = bind store_port
};

}  // namespace strata
