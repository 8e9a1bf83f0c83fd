// Reads a placement: there are four ways to start ranks; contradicting flags are refused.
#include "launcher/place/placement.h"

#include <algorithm>
#include <cstdlib>

#include "engine/base/error.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/machine/identity.h"
#include "engine/base/text.h"
#include "engine/job/flags/config_file.h"
#include "launcher/process/job_process.h"

namespace strata::launcher {
namespace {

constexpr int kDefaultPort = 29'500;

Field Count(std::string name, std::string help) {
  return Field::Int(std::move(name), std::move(help)).AtLeast(1).AtMost(kMostRanks).Optional();
}

/// The number of a flag that has two names; 0 = neither is given.
int OneOf(const Value& flags, const char* name, const char* other) {
  const Value& a = flags[name];
  const Value& b = flags[other];
  if (!a.is_null() && !b.is_null() && a != b) {
    throw ConfigError(Str("--", name, "=", a.as_int(), " and --", other, "=", b.as_int(),
                          " contradict each other"));
  }
  const Value& given = a.is_null() ? b : a;
  return given.is_null() ? 0 : static_cast<int>(given.as_int());
}

std::string TextOf(const Value& flags, const char* name) {
  return flags[name].is_null() ? "" : flags[name].as_string();
}

int NumberOf(const Value& flags, const char* name) {
  return flags[name].is_null() ? 0 : static_cast<int>(flags[name].as_int());
}

/// The placement's flags; synonyms are joined.
struct Asked {
  explicit Asked(const Value& flags)
      : world_size(NumberOf(flags, "nproc")),
        per_node(OneOf(flags, "nproc_per_node", "num_gpus")),
        nodes(OneOf(flags, "nnodes", "num_nodes")),
        node_rank(flags["node_rank"].is_null() ? -1 : NumberOf(flags, "node_rank")),
        master_addr(TextOf(flags, "master_addr")),
        master_port(NumberOf(flags, "master_port")),
        hostfile(TextOf(flags, "hostfile")),
        include(TextOf(flags, "include")),
        exclude(TextOf(flags, "exclude")) {}

  bool picks() const { return !include.empty() || !exclude.empty(); }

  int world_size, per_node, nodes, node_rank;
  std::string master_addr;
  int master_port;
  std::string hostfile, include, exclude;
};

void CheckWorld(const Asked& asked, int world_size, const std::string& who) {
  if (asked.world_size == 0 || asked.world_size == world_size) return;
  throw ConfigError(
      Str("--nproc=", asked.world_size, ", but ", who, " has ", Plural(world_size, "rank")));
}

/// The machines to choose from: those of the host file, or this machine with its GPUs.
std::vector<Host> Pool(const Asked& asked, int gpus) {
  if (!asked.hostfile.empty()) return ReadHosts(asked.hostfile);
  if (gpus == 0) {
    throw ConfigError(
        "--include and --exclude choose among the slots of a --hostfile, or among "
        "the GPUs of this machine, which has none");
  }
  Host here = {"localhost", {}};
  for (int gpu = 0; gpu < gpus; ++gpu) here.slots.push_back(gpu);
  return {here};
}

std::vector<Host> ChosenHosts(const Asked& asked, int gpus) {
  if (!asked.include.empty() && !asked.exclude.empty()) {
    throw ConfigError("--include and --exclude contradict each other; give one of them");
  }
  if (asked.picks() && (asked.nodes > 0 || asked.per_node > 0)) {
    throw ConfigError(Str(asked.include.empty() ? "--exclude" : "--include",
                          " says which slots to use; give no number of nodes or ranks besides"));
  }
  const std::vector<Host> pool = Pool(asked, gpus);
  if (!asked.include.empty()) return Include(pool, asked.include);
  if (!asked.exclude.empty()) return Exclude(pool, asked.exclude);
  return First(pool, asked.nodes, asked.per_node);
}

Placement OverHosts(const Asked& asked, const ThisMachine& machine) {
  Placement placement;
  std::vector<Host> hosts = ChosenHosts(asked, machine.gpus);
  for (const Host& host : hosts) placement.world_size += static_cast<int>(host.slots.size());
  CheckWorld(asked, placement.world_size, "the host file");
  placement.rank_hosts = RankHosts(hosts);
  const bool all_here = hosts.size() == 1 && IsThisMachine(hosts[0].name, machine.name);
  if (all_here) {
    if (asked.picks()) placement.visible_devices = Join(hosts[0].slots, ",");
    return placement;
  }
  if (asked.node_rank >= 0) {
    throw ConfigError(
        "--node_rank is for jobs that are started on every machine; with --hostfile "
        "this program starts them all");
  }
  RankPlace& first = placement.first;
  first.world_size = placement.world_size;
  first.local_world_size = static_cast<int>(hosts[0].slots.size());
  first.store_host = asked.master_addr;
  if (first.store_host.empty()) first.store_host = hosts[0].name;
  first.store_port = asked.master_port;
  if (hosts.size() > 1 && strata::IsLoopback(first.store_host)) {
    throw ConfigError(Str("the other hosts cannot reach rank 0 at \"", first.store_host,
                          "\"; say its address: --master_addr=HOST"));
  }
  placement.hosts = std::move(hosts);
  return placement;
}

Placement OnEveryMachine(const Asked& asked, const Environment& environment) {
  const int nodes = std::max(asked.nodes, 1), per_node = std::max(asked.per_node, 1);
  const auto need = [](bool given, const char* flag, const char* what) {
    if (given) return;
    throw ConfigError(Str("--nnodes: every machine starts its own ranks, so --", flag,
                          " is needed: ", what, " (or --hostfile, to start all from here)"));
  };
  need(asked.node_rank >= 0, "node_rank", "which machine this is, from 0");
  need(!asked.master_addr.empty(), "master_addr", "where rank 0 is");
  if (asked.node_rank >= nodes) {
    throw ConfigError(Str("--node_rank=", asked.node_rank,
                          " is beyond the last of --nnodes=", nodes, "; they count from 0"));
  }
  if (int64_t{nodes} * per_node > kMostRanks) {
    throw ConfigError(Str("--nnodes=", nodes, " times --nproc_per_node=", per_node,
                          " is more than ", kMostRanks, " ranks"));
  }
  Placement placement = {.launcher = "--nnodes", .world_size = nodes * per_node, .ranks = per_node};
  CheckWorld(asked, placement.world_size, "--nnodes times --nproc_per_node");
  RankPlace& first = placement.first;
  first.rank = asked.node_rank * per_node;
  first.world_size = placement.world_size;
  first.local_world_size = per_node;
  first.store_host = asked.master_addr;
  first.store_port = asked.master_port > 0 ? asked.master_port : kDefaultPort;
  first.secret = SecretFrom(environment);
  return placement;
}

Placement Started(const Asked& asked, const ThisMachine& machine, const Discovery& found) {
  CheckWorld(asked, found.place.world_size, found.launcher);
  if (asked.per_node > 0 && asked.per_node != found.place.local_world_size) {
    throw ConfigError(Str("--nproc_per_node=", asked.per_node, ", but ", found.launcher, " has ",
                          Plural(found.place.local_world_size, "rank"), " on this machine"));
  }
  Placement placement = {.launcher = found.launcher,
                         .world_size = found.place.world_size,
                         .ranks = found.ranks,
                         .first = found.place};
  if (found.place.local_world_size == found.place.world_size) {
    placement.rank_hosts = {{.name = machine.name}};
  }
  return placement;
}

/// Throws ConfigError for flags of multi-machine jobs if the job has only one machine, because then
/// another flag is missing.
void CheckNeedsNoOthers(const Value& flags, const Asked& asked) {
  if (asked.nodes > 0) return;  // the command line may be for any number of machines
  for (const char* flag : {"master_addr", "master_port", "remote_program"}) {
    if (flags[flag].is_null()) continue;
    throw ConfigError(Str("--", flag, " is for jobs of several machines: it needs --hostfile, or ",
                          "--nnodes and --node_rank"));
  }
}

Placement Local(const Asked& asked, const ThisMachine& machine) {
  if (asked.world_size > 0 && asked.per_node > 0 && asked.world_size != asked.per_node) {
    throw ConfigError(Str("--nproc=", asked.world_size, ", but --nproc_per_node=", asked.per_node,
                          " on one machine"));
  }
  Placement placement;
  placement.world_size = std::max(asked.world_size, asked.per_node);
  placement.rank_hosts = {{.name = machine.name}};
  return placement;
}

}  // namespace

std::vector<Host> ReadHosts(const std::string& path) {
  return ParseHosts(ReadFlagFile("hostfile", path), path);
}

Field NprocField(std::string help) {
  constexpr int kMostRanksHere = 4096;
  return Field::Int("nproc", std::move(help)).AtLeast(1).AtMost(kMostRanksHere).Optional();
}

Field HostfileField(std::string help) {
  return Field::String("hostfile", std::move(help)).Optional();
}

FieldTable PlacementFields() {
  return {
      NprocField("ranks of the job; none = the product of the degrees"),
      Count("nproc_per_node", "ranks on each machine"),
      Count("num_gpus", "the same as nproc_per_node"),
      Count("nnodes", "machines; with --hostfile its first ones, else each starts its own ranks"),
      Count("num_nodes", "the same as nnodes"),
      Field::Int("node_rank", "which of --nnodes this machine is").AtLeast(0).Optional(),
      Field::String("master_addr", "where rank 0 is, for the other machines").Optional(),
      Field::Int("master_port", "rank 0's port there; none = a free one, 29500 with --nnodes")
          .AtLeast(1)
          .AtMost(65'535)
          .Optional(),
      HostfileField("a file of lines \"HOST slots=N\", also with speed= and memory= of each rank: "
                    "ranks are started there over ssh"),
      Field::String("include", "only these of the hostfile: host1@host2:0,2").Optional(),
      Field::String("exclude", "all of the hostfile but these: host3@host4:1").Optional(),
  };
}

bool IsThisMachine(const std::string& host, const std::string& name) {
  return strata::IsLoopback(host) || host == name || host == Split(name, '.').front();
}

Placement ReadPlacement(const Value& flags, const Environment& environment,
                        const ThisMachine& machine) {
  const Asked asked(flags);
  const bool over_hosts = !asked.hostfile.empty() || asked.picks();
  if (!over_hosts && (asked.nodes > 1 || asked.node_rank >= 0))
    return OnEveryMachine(asked, environment);
  const std::optional<Discovery> found = Discover(environment, {.master_addr = asked.master_addr,
                                                                .master_port = asked.master_port,
                                                                .ranks_per_node = asked.per_node});
  if (over_hosts && found && found->place.world_size > 1) {
    throw ConfigError(
        Str("--hostfile, --include and --exclude start all ranks, but this process is "
            "rank ",
            found->place.rank, " of ", found->place.world_size, " of ", found->launcher));
  }
  if (over_hosts) return OverHosts(asked, machine);
  if (found) return Started(asked, machine, *found);
  CheckNeedsNoOthers(flags, asked);
  return Local(asked, machine);
}

Placement PlacementHere(const Value& flags) {
  Placement placement =
      ReadPlacement(flags, ProcessEnvironment(), {.name = HostName(), .gpus = GpuCount()});
  if (!placement.visible_devices.empty()) {
    ::setenv("CUDA_VISIBLE_DEVICES", placement.visible_devices.c_str(), 1);
  }
  return placement;
}

void CheckIsWhole(const Placement& placement, std::string_view command) {
  if (!placement.is_part()) return;
  throw ConfigError(Str(command, " starts all ranks itself, but this process is rank ",
                        placement.first.rank, " of ", placement.world_size, " of ",
                        placement.launcher));
}

}  // namespace strata::launcher
