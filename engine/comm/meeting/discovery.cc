// Each outside launcher's variables are read into a Claim. Claims of outer launchers are dropped
// (ReadClaims()); those that remain must agree (Agreed()).
#include "engine/comm/meeting/discovery.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"

extern char** environ;

namespace strata {
namespace {

constexpr int kDefaultPort = 29'500;  // as in PyTorch and DeepSpeed
constexpr int kLargestWorld = 1 << 20;
constexpr int kLargestPort = 65'535;

std::optional<int> ParsePort(std::string_view text) { return ParseWhole(text, 1, kLargestPort); }

/// Reads variables of the environment and remembers their names, which error messages list.
class Reader {
 public:
  explicit Reader(const Environment& environment) : Reader(environment, environment) {}
  /// `own` is the process's environment. Where `environment` differs from it, the value came from a
  /// call of strata.comm.init.
  Reader(const Environment& environment, const Environment& own)
      : environment_(environment), own_(own) {}
  const Environment& own() const { return own_; }

  /// From now on variables of the Slurm step read as not set, because the step is one of mpirun's
  /// daemons.
  void HideSlurmsStep() { hides_slurms_step_ = true; }
  bool hides_slurms_step() const { return hides_slurms_step_; }

  /// The variable's value; "" when it is not set or empty.
  const std::string& Text(const std::string& name) {
    static const std::string none;
    if (hides_slurms_step_ && name.starts_with("SLURM_STEP_")) return none;
    const auto found = environment_.find(name);
    if (found == environment_.end() || found->second.empty()) return none;
    Note(name);
    return found->second;
  }
  bool Has(const std::string& name) { return !Text(name).empty(); }

  std::optional<int> Number(const std::string& name, int least, int most) {
    const std::string& text = Text(name);
    if (text.empty()) return std::nullopt;
    const std::optional<int> number = ParseWhole(text, least, most);
    if (!number) Fail(Str(name, " = ", text, " is no whole number from ", least, " to ", most));
    return number;
  }
  /// The variable's value parsed by `expand`, such as a list "2(x3),1"; an empty list if it is not
  /// set.
  template <class Expand>
  auto Expanded(const std::string& name, const Expand& expand) {
    try {
      return Has(name) ? expand(Text(name)) : decltype(expand(""))();
    } catch (const ConfigError& error) {
      Fail(Str(name, ": ", error.what()));
    }
  }

  [[noreturn]] void Missing(const std::string& name, const std::string& what) {
    Note(name);
    Fail(Str(name, " is missing: ", what));
  }
  /// Throws ConfigError with the text `why` and all variables that were read.
  [[noreturn]] void Fail(const std::string& why) const {
    size_t widest = 0;
    for (const std::string& name : noted_) widest = std::max(widest, name.size());
    std::string text = why + "\nread from the environment:";
    for (const std::string& name : noted_) {
      const auto found = environment_.find(name);
      text += Str("\n  ", name, std::string(widest - name.size(), ' '), " ",
                  found == environment_.end() ? "(not set)" : "= " + found->second,
                  IsFromCall(name) ? " (from the call)" : "");
    }
    throw ConfigError(text);
  }

 private:
  void Note(const std::string& name) {
    if (std::find(noted_.begin(), noted_.end(), name) == noted_.end()) noted_.push_back(name);
  }
  bool IsFromCall(const std::string& name) const {
    const auto said = environment_.find(name), own = own_.find(name);
    return said != environment_.end() && (own == own_.end() || own->second != said->second);
  }

  const Environment& environment_;
  const Environment& own_;
  bool hides_slurms_step_ = false;
  std::vector<std::string> noted_;
};

/// The name of an outside launcher and of its variables for four numbers; "" if it has no such
/// variable.
struct Launcher {
  std::string name;
  std::string rank, size, local_rank, local_size;
};

const Launcher kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
const Launcher kSlurm = {"Slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""};
const std::array<Launcher, 3> kMpi = {{
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
     "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPICH or Intel MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PMIx", "PMIX_RANK", "", "", ""},
}};

/// A number and the name of the variable that it was read from.
struct Reading {
  std::string name;
  std::optional<int> number;
};

/// The numbers that one outside launcher's variables give.
struct Claim {
  std::string launcher;
  Reading rank, size, local_rank, local_size;
  bool is_empty() const { return !rank.number && !size.number; }
};

Claim ReadClaim(Reader& reader, const Launcher& launcher) {
  const auto read = [&](const std::string& name, int least) {
    return Reading{name, name.empty() ? std::nullopt : reader.Number(name, least, kLargestWorld)};
  };
  return {launcher.name, read(launcher.rank, 0), read(launcher.size, 1),
          read(launcher.local_rank, 0), read(launcher.local_size, 1)};
}

/// True in Slurm's batch script, which has SLURM_PROCID although it is not a task.
bool IsBatchScript(Reader& reader) {
  return reader.Text("ENVIRONMENT") == "BATCH" && !reader.Has("SLURM_STEP_ID");
}

std::vector<std::string> SlurmHosts(Reader& reader) {
  for (const char* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"}) {
    std::vector<std::string> hosts = reader.Expanded(name, ExpandHostList);
    if (!hosts.empty()) return hosts;
  }
  return {};
}

/// The number of tasks on this node: this node's entry in the list of counts, or `size` divided by
/// the number of hosts.
std::optional<int> SlurmLocalSize(Reader& reader, int size) {
  for (const char* name : {"SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"}) {
    const std::vector<int> counts = reader.Expanded(name, ExpandCounts);
    if (counts.empty()) continue;
    const int nodes = static_cast<int>(counts.size());
    if (std::equal(counts.begin() + 1, counts.end(), counts.begin())) return counts[0];
    const std::optional<int> node = reader.Number("SLURM_NODEID", 0, nodes - 1);
    if (!node) reader.Missing("SLURM_NODEID", "the nodes have different numbers of tasks");
    return counts[static_cast<size_t>(*node)];
  }
  const int hosts = static_cast<int>(SlurmHosts(reader).size());
  if (hosts == 0 || size % hosts != 0) return std::nullopt;
  return size / hosts;
}

Claim ReadSlurm(Reader& reader) {
  Launcher launcher = kSlurm;
  if (!reader.Has(launcher.rank) || IsBatchScript(reader)) return {};
  if (!reader.Has(launcher.size)) launcher.size = "SLURM_NTASKS";
  Claim claim = ReadClaim(reader, launcher);
  if (claim.size.number.value_or(1) > 1) {
    claim.local_size = {"SLURM_TASKS_PER_NODE", SlurmLocalSize(reader, *claim.size.number)};
  }
  return claim;
}

bool IsOfMpi(const Claim& claim) {
  return claim.launcher == kMpi[0].name || claim.launcher == kMpi[1].name;
}

/// True if the claim may come from Slurm's MPI plugin for the only task of a step. A claim of
/// mpirun would also have local numbers.
bool IsOfOneTask(const Claim& claim) {
  const bool may_be_slurms = claim.launcher == kMpi[1].name || claim.launcher == kMpi[2].name;
  return may_be_slurms && claim.rank.number == 0 && claim.size.number.value_or(1) == 1 &&
         !claim.local_rank.number;
}

/// Reads the claims of the outside launchers that may have started this process. If one launcher
/// started another, only the inner one's claim is kept. torchrun's agent may be started by any of
/// the others. mpirun may start its daemons by Slurm; Slurm's numbers then count daemons, not
/// ranks. On the node of mpirun itself there is no step, or only the step in which mpirun was
/// typed. So under mpirun no variable of a step is used, and all ranks find the same address of
/// rank 0.
std::vector<Claim> ReadClaims(Reader& reader, bool only_torchrun) {
  std::vector<Claim> claims;
  const auto add = [&](Claim claim) {
    if (!claim.is_empty()) claims.push_back(std::move(claim));
  };
  add(ReadClaim(reader, kTorchrun));
  if (only_torchrun || reader.Has("TORCHELASTIC_RUN_ID")) return claims;
  for (const Launcher& launcher : kMpi) add(ReadClaim(reader, launcher));
  Claim slurm = ReadSlurm(reader);
  if (slurm.size.number == 1) {  // an interactive step with one task
    std::erase_if(claims, IsOfOneTask);
    slurm = {};
  }
  const bool by_mpirun = std::any_of(claims.begin(), claims.end(), [&](const Claim& claim) {
    return IsOfMpi(claim) && (claim.local_rank.number || claim.rank.number != slurm.rank.number ||
                              (claim.size.number && claim.size.number != slurm.size.number));
  });
  if (by_mpirun) {
    reader.HideSlurmsStep();
  } else {
    add(slurm);
  }
  return claims;
}

/// The number on which all claims agree; it is empty if no claim has the number. Fails if two
/// claims differ.
Reading Agreed(const Reader& reader, const std::vector<Claim>& claims, Reading Claim::*which,
               const std::string& what) {
  Reading agreed;
  for (const Claim& claim : claims) {
    const Reading& reading = claim.*which;
    if (agreed.name.empty()) agreed.name = reading.name;
    if (!reading.number) continue;
    if (agreed.number && agreed.number != reading.number) {
      reader.Fail(Str("two launchers disagree on ", what, ": ", agreed.name, " = ", *agreed.number,
                      ", but ", reading.name, " = ", *reading.number,
                      "; unset the variables of the one that did not start this process"));
    }
    if (!agreed.number) agreed = reading;
  }
  return agreed;
}

/// A name that all ranks of this job know and no other job has; "" if there is none.
std::string JobId(Reader& reader) {
  if (reader.Has("TORCHELASTIC_RUN_ID")) {
    return Str(reader.Text("TORCHELASTIC_RUN_ID"), "/", reader.Text("TORCHELASTIC_RESTART_COUNT"));
  }
  for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
    if (reader.Has(name)) return reader.Text(name);
  }
  if (!reader.Has("SLURM_JOB_ID")) return "";
  return Str(reader.Text("SLURM_JOB_ID"), ".", reader.Text("SLURM_STEP_ID"));
}

/// A port derived from the job's id, so that two jobs on one machine rarely use the same one. It is
/// below the range from which the kernel chooses ports.
int PortOf(const std::string& job_id) {
  if (job_id.empty()) return kDefaultPort;
  return 20'000 + static_cast<int>(std::stoull(Digest(job_id).substr(1), nullptr, 16) % 9'000);
}

/// The machine of rank 0 according to Slurm's list of hosts, for when MASTER_ADDR is not set; "" if
/// there is no list.
std::string MasterBySlurm(Reader& reader) {
  if (!reader.Has("SLURM_PROCID") && !reader.hides_slurms_step()) return "";
  const std::vector<std::string> hosts = SlurmHosts(reader);
  return hosts.empty() ? "" : hosts.front();
}

/// Sets the fields of `place` about the store: host, port, whether it is served already, and the
/// job's id.
void ReadStore(Reader& reader, const DiscoveryOptions& options, RankPlace& place) {
  place.job_id = JobId(reader);
  place.store_is_served = reader.Text("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.store_host =
      !options.master_addr.empty() ? options.master_addr : reader.Text("MASTER_ADDR");
  const std::optional<int> port = reader.Number("MASTER_PORT", 1, kLargestPort);
  place.store_port = options.master_port > 0 ? options.master_port
                     : port                  ? *port
                                             : PortOf(place.job_id);
  if (place.store_is_served && (place.store_host.empty() || !port)) {
    reader.Missing(port ? "MASTER_ADDR" : "MASTER_PORT", "the store of torchrun's agent");
  }
  if (place.is_local() && !place.store_is_served) place.store_host = "127.0.0.1";
  if (place.store_host.empty()) place.store_host = MasterBySlurm(reader);
  if (place.store_host.empty()) {
    reader.Missing("MASTER_ADDR",
                   "the ranks are on several machines; say where rank 0 is: MASTER_ADDR=HOST, or "
                   "--master_addr=HOST on the command line");
  }
}

void CheckRange(const Reader& reader, const Reading& index, const Reading& size) {
  if (*index.number < *size.number) return;
  reader.Fail(Str(index.name, " = ", *index.number, " is beyond the last of ", size.name, " = ",
                  *size.number, "; they count from 0"));
}

/// True in the first pod of a PyTorchJob, whose MASTER_ADDR says "localhost" although the other
/// ranks are in other pods.
bool IsFirstPod(const Reader& reader, int rank) {
  const Environment& own = reader.own();
  const auto address = own.find("MASTER_ADDR");
  if (rank != 0 || address == own.end() || !IsLoopback(address->second)) return false;
  const auto elastic = own.lower_bound("PET_");
  return own.contains("KUBERNETES_SERVICE_HOST") ||
         (elastic != own.end() && elastic->first.starts_with("PET_"));
}

/// Sets local_rank and local_world_size. If no variable gives them: when MASTER_ADDR is loopback
/// all ranks are on this machine, otherwise this rank is alone on its machine (PyTorchJob).
void ReadLocal(Reader& reader, const std::vector<Claim>& claims, RankPlace& place) {
  Reading rank = Agreed(reader, claims, &Claim::local_rank, "the rank on this machine");
  Reading size = Agreed(reader, claims, &Claim::local_size, "the number of ranks here");
  const bool all_here = place.world_size == 1 ||
                        (IsLoopback(reader.Text("MASTER_ADDR")) && !IsFirstPod(reader, place.rank));
  if (!size.number && all_here) size.number = place.world_size;
  if (!rank.number && size.number == place.world_size) rank.number = place.rank;
  if (!rank.number && !size.number) rank.number = 0, size.number = 1;
  if (!size.number) reader.Missing(size.name, "how many ranks are on this machine");
  if (!rank.number && size.number == 1) rank.number = 0;
  if (!rank.number) reader.Missing(rank.name, "which of the ranks on this machine this one is");
  CheckRange(reader, rank, size);
  place.local_rank = *rank.number;
  place.local_world_size = *size.number;
  if (place.local_world_size > place.world_size) {
    reader.Fail(Str(size.name, " = ", *size.number, " ranks on this machine, but only ",
                    place.world_size, " in all"));
  }
}

/// Discovers the place when the outside launcher starts one process for each rank.
Discovery DiscoverRank(Reader& reader, const DiscoveryOptions& options,
                       const std::vector<Claim>& claims) {
  const Reading rank = Agreed(reader, claims, &Claim::rank, "the rank");
  const Reading size = Agreed(reader, claims, &Claim::size, "the number of ranks");
  if (!rank.number) reader.Missing(rank.name, "which rank this process is");
  if (!size.number) {
    reader.Missing(size.name.empty() ? "WORLD_SIZE" : size.name, "how many ranks there are");
  }
  CheckRange(reader, rank, size);
  Discovery found = {.launcher = claims.front().launcher};
  found.place.rank = *rank.number;
  found.place.world_size = *size.number;
  ReadLocal(reader, claims, found.place);
  ReadStore(reader, options, found.place);
  return found;
}

/// Discovers the ranks when the outside launcher starts one process for each machine, which then
/// has to run `per_node` ranks.
Discovery DiscoverNode(Reader& reader, const DiscoveryOptions& options, const std::string& launcher,
                       int node, int nodes, int per_node) {
  if (static_cast<int64_t>(nodes) * per_node > kLargestWorld) reader.Fail("too many ranks");
  Discovery found = {.launcher = launcher, .ranks = per_node};
  found.place.rank = node * per_node;
  found.place.world_size = nodes * per_node;
  found.place.local_world_size = per_node;
  ReadStore(reader, options, found.place);
  return found;
}

/// Discovers the ranks of a PyTorchJob with several ranks in each pod, where RANK counts pods.
/// Returns nothing for other jobs.
std::optional<Discovery> DiscoverPod(Reader& reader, const DiscoveryOptions& options) {
  const std::string& per_node_text = reader.Text("PET_NPROC_PER_NODE");
  if (per_node_text.empty() || reader.Has(kTorchrun.local_rank)) return std::nullopt;
  int per_node = options.ranks_per_node;
  if (per_node == 0 && (per_node_text == "auto" || per_node_text == "gpu")) {
    reader.Fail(Str("PET_NPROC_PER_NODE = ", per_node_text,
                    " leaves the number of ranks of each pod open; say it: --nproc_per_node=N"));
  }
  if (per_node == 0) per_node = *reader.Number("PET_NPROC_PER_NODE", 1, kLargestWorld);
  if (per_node == 1) return std::nullopt;
  Reading nodes = {"PET_NNODES", reader.Number("PET_NNODES", 1, kLargestWorld)};
  Reading node = {"PET_NODE_RANK", reader.Number("PET_NODE_RANK", 0, kLargestWorld)};
  if (!node.number) node = {"RANK", reader.Number("RANK", 0, kLargestWorld)};
  if (!nodes.number) reader.Missing(nodes.name, "how many pods there are");
  if (!node.number) reader.Missing(node.name, "which of the pods this one is");
  CheckRange(reader, node, nodes);
  return DiscoverNode(reader, options, "PyTorchJob", *node.number, *nodes.number, per_node);
}

std::optional<Discovery> DiscoverLauncher(Reader& reader, const DiscoveryOptions& options,
                                          bool only_torchrun) {
  if (auto pod = DiscoverPod(reader, options)) return pod;
  const std::vector<Claim> claims = ReadClaims(reader, only_torchrun);
  if (claims.empty()) return std::nullopt;
  return DiscoverRank(reader, options, claims);
}

std::optional<Discovery> DiscoverFrom(Reader& reader, const DiscoveryOptions& options,
                                      bool only_torchrun) {
  std::optional<Discovery> found = DiscoverLauncher(reader, options, only_torchrun);
  if (found) found->place.secret = SecretFrom(reader.own());
  return found;
}

/// Splits tcp://HOST[:PORT] into host and port; `port` is the default. An IPv6 address is in
/// brackets.
std::pair<std::string, int> ParseTcp(const std::string& method, int port) {
  std::string host = method.substr(std::string_view("tcp://").size());
  const size_t colon = host.rfind(':');
  if (colon != host.npos && host.find(']', colon) == host.npos) {
    port = ParsePort(std::string_view(host).substr(colon + 1)).value_or(0);
    host.resize(colon);
  } else if (port == 0) {
    port = kDefaultPort;
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.empty() || host.find_first_of("/[] ") != host.npos || port == 0) {
    throw ConfigError(Str("init_method = \"", method, "\": expected tcp://HOST:PORT"));
  }
  return {host, port};
}

void CheckSame(const Reader& reader, const char* name, int asked, int found) {
  if (asked < 0 || asked == found) return;
  reader.Fail(Str(name, " = ", asked, ", but the environment says ", found));
}

/// Returns the environment with rank and world_size of the call as RANK and WORLD_SIZE, unless
/// these variables are set already.
Environment WithCall(Environment environment, const InitOptions& options) {
  const auto say = [&](const char* name, int number) {
    if (number >= 0 && environment[name].empty()) environment[name] = std::to_string(number);
  };
  say("RANK", options.rank);
  say("WORLD_SIZE", options.world_size);
  return environment;
}

}  // namespace

Environment ProcessEnvironment() {
  Environment environment;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (equals == text.npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

bool IsLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::string SecretFrom(const Environment& environment) {
  constexpr size_t kLeast = 16;
  const auto found = environment.find("STRATA_SECRET");
  if (found == environment.end() || found->second.empty()) return "";
  if (found->second.size() >= kLeast) return found->second;
  throw ConfigError(Str("STRATA_SECRET has ", found->second.size(), " characters, fewer than ",
                        kLeast, ": it would be guessed"));
}

std::optional<Discovery> Discover(const Environment& environment, const DiscoveryOptions& options) {
  Reader reader(environment);
  return DiscoverFrom(reader, options, /*only_torchrun=*/false);
}

RankPlace PlaceFromInit(const InitOptions& options, const Environment& environment) {
  const std::string& method = options.init_method;
  const bool by_tcp = method.starts_with("tcp://"), by_file = method.starts_with("file:///");
  if (method != "env://" && !by_tcp && !by_file) {
    throw ConfigError(
        Str("init_method = \"", method, "\": expected env://, tcp://HOST:PORT or file:///PATH"));
  }
  Environment all = WithCall(environment, options);
  DiscoveryOptions store = {.master_port = all.contains("MASTER_PORT") ? 0 : options.port};
  if (by_tcp) {
    std::tie(store.master_addr, store.master_port) = ParseTcp(method, options.port);
    all["MASTER_ADDR"] = store.master_addr;
  } else if (by_file) {
    all["MASTER_ADDR"] =
        "127.0.0.1";  // all ranks are on this machine, unless LOCAL_WORLD_SIZE is set
  }
  Reader reader(all, environment);
  const std::optional<Discovery> found = DiscoverFrom(reader, store, !options.discover);
  if (!found) reader.Fail("neither the call nor the environment says rank and world_size");
  if (found->ranks > 1) {
    reader.Fail(Str(found->launcher, " starts one process for each machine, which stands for ",
                    found->ranks, " ranks; let strata train start them"));
  }
  RankPlace place = found->place;
  CheckSame(reader, "rank", options.rank, place.rank);
  CheckSame(reader, "world_size", options.world_size, place.world_size);
  if (by_tcp || by_file) place.store_is_served = false;
  if (by_file) place.store_file = method.substr(std::string_view("file://").size());
  return place;
}

}  // namespace strata
