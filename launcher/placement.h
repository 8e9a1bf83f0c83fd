// Placement: where the ranks of a job are, and which of them this program starts; from the command
// line and the environment.
//
//   who starts                              which ranks are started here
//   this program, on this machine           all
//   this program, over ssh (--hostfile)     all, each host's by a `strata worker` there
//   this program on every machine           those of --node_rank, --nproc_per_node of them
//     (--nnodes --node_rank)
//   torchrun, mpirun, srun, ...             one (discovery.h)
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/comm/discovery.h"
#include "engine/comm/place.h"
#include "engine/spec/fields.h"
#include "launcher/hosts.h"

namespace strata::launcher {

struct Placement {
  std::string starter = {};  ///< of this process, when it is one of several; "" = it is not
  int world_size = 0;        ///< 0 = as many ranks as the degrees need, all on this machine
  int ranks = 0;             ///< started here; 0 = all
  RankPlace first = {};      ///< the first of them, where world_size is known
  /// The machines of a job that is started from here, in the order of ranks; none otherwise.
  std::vector<Host> hosts = {};
  /// GPUs that the ranks here may see, as --include picked them: "0,2"; "" = all.
  std::string visible_devices = {};

  /// Each rank here is a process among others that this program does not start: no threads.
  bool is_part() const { return ranks > 0; }
};

/// What the machine contributes.
struct ThisMachine {
  std::string name;  ///< gethostname()
  int gpus = 0;
};

/// The flags that say it, DeepSpeed's and torchrun's names among them.
FieldTable PlacementFields();

/// `flags`: a command's own, with PlacementFields(). Reads the host file. Throws ConfigError for
/// flags that contradict each other, the environment, or what there is.
Placement ReadPlacement(const Value& flags, const Environment& environment,
                        const ThisMachine& machine);

/// The same with this process's environment on this machine. Hides the GPUs that were not picked.
Placement PlacementHere(const Value& flags);

/// "localhost", or a name of this machine.
bool IsThisMachine(const std::string& host, const std::string& name);

}  // namespace strata::launcher
