// Hosts: the machines of a job that this program starts over ssh. They come from a host file and
// from flags that pick some of its hosts. The formats are DeepSpeed's.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/job/rank_abilities.h"

namespace strata::launcher {

/// A machine and its slots. Each slot is one rank; if there are GPUs, on the GPU with the slot's
/// number.
struct Host {
  std::string name;  ///< the host's name for ssh; set a user in ssh's configuration or in --ssh
  std::vector<int> slots;
  RankRule says = {};      ///< of each of its ranks; `who` is not used
  std::string where = {};  ///< the place in the host file, if that says something
  bool operator==(const Host&) const = default;
};

/// Reads a host file: lines "HOST slots=N", which may go on with speed=NUMBER and memory=SIZE of
/// each rank there; `#` begins a comment. `path` is for errors. Throws
/// ConfigError with the line for: another form, a host that comes twice, a name that no host can
/// have, and a file without hosts.
std::vector<Host> ParseHosts(std::string_view text, const std::string& path);

/// The hosts of a spec such as "host1@host2:0,2", with the given slots, else with all slots, in the
/// order of `hosts`. Throws ConfigError for an unknown host or slot, and for one given twice.
std::vector<Host> Include(const std::vector<Host>& hosts, const std::string& spec);
/// The hosts and slots that are not in the spec. A host without slots is left out.
std::vector<Host> Exclude(const std::vector<Host>& hosts, const std::string& spec);

/// The first `nodes` hosts with the first `slots` slots of each; 0 = all. Throws ConfigError when
/// there are fewer.
std::vector<Host> First(std::vector<Host> hosts, int nodes, int slots);

/// The hosts as AbilitiesOf() needs them.
std::vector<RankHost> RankHosts(const std::vector<Host>& hosts);

/// Throws ConfigError for a name that ssh or a shell could take for something other than a host.
/// Allowed are letters, digits and . _ - : without a '-' in front.
void CheckHostName(std::string_view name);

}  // namespace strata::launcher
