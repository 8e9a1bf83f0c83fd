// Discovery: where this process stands in a job that another program started, read from its
// environment; without linking MPI. Torch-free and pure.
//
//   starter                variables
//   torchrun               RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE, TORCHELASTIC_*
//   Open MPI               OMPI_COMM_WORLD_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE
//   MPICH, Intel MPI       PMI_RANK PMI_SIZE MPI_LOCALRANKID MPI_LOCALNRANKS
//   PMIx                   PMIX_RANK; the size comes from one of the others
//   Slurm (srun)           SLURM_PROCID SLURM_STEP_NUM_TASKS|SLURM_NTASKS SLURM_LOCALID,
//                          SLURM_STEP_NODELIST|SLURM_JOB_NODELIST, SLURM_TASKS_PER_NODE
//   Kubernetes PyTorchJob  RANK WORLD_SIZE, PET_NPROC_PER_NODE PET_NNODES PET_NODE_RANK
//   SageMaker              SM_HOSTS SM_CURRENT_HOST SM_NUM_GPUS
//
// Rank 0's address: the command line, MASTER_ADDR and MASTER_PORT, AZ_BATCH_MASTER_NODE (Azure ML),
// the first of Slurm's nodes or of SM_HOSTS; loopback where all ranks are on this machine.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/comm/place.h"

namespace strata {

/// Variables and their values.
using Environment = std::map<std::string, std::string, std::less<>>;
Environment ProcessEnvironment();

/// What a command line says; it holds over the environment.
struct DiscoveryOptions {
  std::string master_addr = {};
  int master_port = 0;
  int ranks_per_node = 0;  ///< where a starter starts one process for each machine
};

struct Discovery {
  std::string starter;   ///< for people: "torchrun", "Slurm"
  RankPlace place = {};  ///< of the first rank that this process stands for
  /// How many ranks this process stands for: place.rank and those behind it. More than one where
  /// the starter starts one process for each machine (PyTorchJob, SageMaker).
  int ranks = 1;
};

/// None where no starter left its variables, and where Slurm or SageMaker has a single task or
/// host, as in an interactive shell. Throws ConfigError with everything that was read: a variable
/// that is missing or no number, a rank beyond the size, two starters that disagree, no way to know
/// where rank 0 is.
std::optional<Discovery> Discover(const Environment& environment,
                                  const DiscoveryOptions& options = {});

/// What strata.comm.init takes; -1 and "" = left out.
struct InitOptions {
  /// "env://", "tcp://HOST[:PORT]", or "file:///PATH": a file that all ranks see and that is new.
  std::string init_method = "env://";
  int rank = -1;
  int world_size = -1;
  int port = 0;          ///< of the store, where nothing else says one; 0 = the job's own or 29500
  bool discover = true;  ///< false: only torchrun's variables count
};

/// The place that init_method, the other options and the environment give together. With tcp:// and
/// file:// rank and world_size may come from either; where both say one, they must agree. With
/// file:// all ranks are on this machine unless LOCAL_RANK and LOCAL_WORLD_SIZE say otherwise.
/// Throws ConfigError.
RankPlace PlaceFromInit(const InitOptions& options, const Environment& environment);

/// Slurm's form of host names: "node[01-03,7],gpu-a[1-2]b" -> node01 node02 node03 node7 gpu-a1b
/// gpu-a2b. Of several brackets in a name the last runs fastest. Throws ConfigError for what is no
/// such list, and for more than 65,536 hosts.
std::vector<std::string> ExpandHostList(std::string_view list);

/// Slurm's form of counts: "2(x3),1" -> 2 2 2 1. Throws ConfigError.
std::vector<int> ExpandCounts(std::string_view counts);

/// "localhost", 127.x.x.x or ::1.
bool IsLoopback(std::string_view host);

}  // namespace strata
