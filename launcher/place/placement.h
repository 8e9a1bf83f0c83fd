// Placement: where the ranks of a job run, and which of them this process starts. It is read from
// the command line and the environment.
//
//   started by                                this process starts
//   the user, on one machine                  all ranks
//   the user, with --hostfile                 all ranks; on each host through a `strata worker`
//   the user, on every machine                the --nproc_per_node ranks of its --node_rank
//     (--nnodes --node_rank)
//   an outside launcher: torchrun, mpirun,    the rank that the environment says, or all ranks of
//     srun and the like                       this machine (discovery.h)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"
#include "engine/comm/meeting/discovery.h"
#include "engine/comm/place.h"
#include "launcher/place/hosts.h"

namespace strata::launcher {

/// Where the ranks are, and which of them start here.
struct Placement {
  /// What started this process as one of several, shown to the user: "torchrun", "--nnodes"; "" =
  /// it is the only one.
  std::string launcher = {};
  int world_size = 0;    ///< 0 = as many ranks as the degrees need, all on this machine
  int ranks = 0;         ///< number of ranks that start here; 0 = all
  RankPlace first = {};  ///< the place of the first of these ranks; set if world_size is known
  /// The machines of a job that this process starts by ssh, in the order of ranks; else empty.
  std::vector<Host> hosts = {};
  /// All machines of the job in the order of ranks, with what a host file says about their ranks;
  /// empty if this process knows only its own of several.
  std::vector<RankHost> rank_hosts = {};
  /// The GPUs that the ranks here may use, as --include selected them: "0,2"; "" = all.
  std::string visible_devices = {};

  /// True if other processes start the rest of the ranks. Then ranks cannot be threads.
  bool is_part() const { return ranks > 0; }
};

/// What ReadPlacement() needs to know about this machine.
struct ThisMachine {
  std::string name;  ///< gethostname()
  int gpus = 0;
};

/// The flag --nproc=N, the number of ranks. Commands that run only on this machine have no other
/// placement flag.
Field NprocField(std::string help = "ranks to start; none = the product of the degrees");
/// The flag --hostfile.
Field HostfileField(std::string help);
/// The hosts of the file. Throws ConfigError as ParseHosts() does, and if it cannot be read.
std::vector<Host> ReadHosts(const std::string& path);
/// The flags for the placement. Some have DeepSpeed's or torchrun's names.
FieldTable PlacementFields();

/// Reads the placement, including the host file. `flags` are the command's own, with
/// PlacementFields(). Throws ConfigError if flags contradict each other, the environment, the host
/// file or the machine.
Placement ReadPlacement(const Value& flags, const Environment& environment,
                        const ThisMachine& machine);

/// ReadPlacement() with this process's environment on this machine. Also hides the GPUs that were
/// not selected.
Placement PlacementHere(const Value& flags);

/// Throws ConfigError if other processes start the rest of the ranks. `command`, such as "strata
/// verify", starts all of them itself.
void CheckIsWhole(const Placement& placement, std::string_view command);

/// True if `host` is "localhost" or a name of this machine, whose name is `name`.
bool IsThisMachine(const std::string& host, const std::string& name);

}  // namespace strata::launcher
