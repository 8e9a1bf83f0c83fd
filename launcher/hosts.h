// Hosts: the machines of a job that this program starts, from a host file and from what the command
// line picks of it. DeepSpeed's formats. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

/// A machine and its slots: a rank each, on the GPU of that number where there are GPUs.
struct Host {
  std::string name;  ///< as ssh takes it; ssh's own configuration, or --ssh, may name a user
  std::vector<int> slots;
  bool operator==(const Host&) const = default;
};

/// Lines "HOST slots=N"; `#` begins a comment. `path` is for the errors. Throws ConfigError with
/// the line: another form, a host twice, a name that no host has, no host at all.
std::vector<Host> ParseHosts(std::string_view text, const std::string& path);

/// "host1@host2:0,2": these hosts, with all slots or the given ones, in the order of `hosts`.
/// Throws ConfigError for a host or slot that is not among them, and for one given twice.
std::vector<Host> Include(const std::vector<Host>& hosts, const std::string& spec);
/// All but these; a host without slots left is gone.
std::vector<Host> Exclude(const std::vector<Host>& hosts, const std::string& spec);

/// The first `nodes` hosts with the first `slots` slots of each; 0 = all. Throws ConfigError where
/// there are fewer.
std::vector<Host> First(std::vector<Host> hosts, int nodes, int slots);

/// Throws ConfigError unless ssh and a shell take the name for nothing but a host: letters, digits,
/// and . _ - : and no '-' in front.
void CheckHostName(std::string_view name);

}  // namespace strata::launcher
