// Discovery: finds the place of this process in a job that an outside launcher started (torchrun,
// mpirun, srun and the like). It reads environment variables only and does not link MPI.
// Torch-free, without side effects.
//
//   outside launcher       variables
//   torchrun               RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE, TORCHELASTIC_*
//   Open MPI               OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   MPICH, Intel MPI       PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS
//   PMIx                   PMIX_RANK; the size comes from one of the others
//   Slurm (srun)           SLURM_PROCID SLURM_STEP_NUM_TASKS|SLURM_NTASKS SLURM_LOCALID,
//                          SLURM_STEP_NODELIST|SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE
//   Kubernetes PyTorchJob  RANK WORLD_SIZE, PET_NPROC_PER_NODE PET_NNODES PET_NODE_RANK
//
// Rank 0's address is loopback if all ranks are on this machine. Else it is the first of these that
// is set: the command line's, MASTER_ADDR and MASTER_PORT, the first of Slurm's nodes (the step's;
// for mpirun inside Slurm the allocation's).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/place.h"

namespace strata {

/// Environment variables: name to value.
using Environment = std::map<std::string, std::string, std::less<>>;
/// The environment of this process.
Environment ProcessEnvironment();

/// The secret of a job that an outside launcher starts: $STRATA_SECRET, which must be the same text
/// on all ranks; "" if it is not set. Throws ConfigError if it has fewer than 16 characters.
std::string SecretFrom(const Environment& environment);

/// The options of the command line, which take precedence over the environment. "" and 0 mean that
/// an option is not given.
struct DiscoveryOptions {
  std::string master_addr = {};
  int master_port = 0;
  int ranks_per_node = 0;  ///< where the outside launcher starts one process for each machine
};

/// The ranks that this process has to run: `ranks` of them, from place.rank upwards.
struct Discovery {
  std::string launcher;  ///< the name of the outside launcher for messages: "torchrun", "Slurm"
  RankPlace place = {};  ///< the place of the first of these ranks
  /// More than 1 where the outside launcher starts one process for each machine (PyTorchJob).
  int ranks = 1;
};

/// Finds the place that the environment gives this process. Returns nothing if no outside launcher
/// has set its variables, or if Slurm has a single task, as in an interactive shell. Throws
/// ConfigError if a variable is missing or not a number, a rank is not below the world size, two
/// outside launchers disagree, or rank 0's address is unknown. The text lists all variables that
/// were read.
std::optional<Discovery> Discover(const Environment& environment,
                                  const DiscoveryOptions& options = {});

/// The options of strata.comm.init; -1 means that the script left the option out.
struct InitOptions {
  /// "env://", "tcp://HOST[:PORT]" or "file:///PATH". The file must be new and visible to all
  /// ranks.
  std::string init_method = "env://";
  int rank = -1;
  int world_size = -1;
  int port = 0;  ///< of the store, if nothing else gives one; 0 = derived from the job id, or 29500
  bool discover = true;  ///< false: read only torchrun's variables
};

/// Finds the place from the options and the environment together. `rank` and `world_size` come from
/// the options or from the environment; if both give one, they must agree. With file:// all ranks
/// are on this machine, unless LOCAL_RANK and LOCAL_WORLD_SIZE say otherwise. Throws ConfigError as
/// Discover() does, and if neither gives rank and world_size.
RankPlace PlaceFromInit(const InitOptions& options, const Environment& environment);

/// Expands Slurm's list of host names: "node[01-03,7],gpu-a[1-2]b" -> node01 node02 node03 node7
/// gpu-a1b gpu-a2b. If a name has several brackets, the last one varies fastest. Throws ConfigError
/// if the text has another form or more than 65,536 hosts.
std::vector<std::string> ExpandHostList(std::string_view list);

/// Expands Slurm's list of counts: "2(x3),1" -> 2 2 2 1. Throws ConfigError if it has another form.
std::vector<int> ExpandCounts(std::string_view counts);

/// True for "localhost", 127.x.x.x and ::1.
bool IsLoopback(std::string_view host);

}  // namespace strata
