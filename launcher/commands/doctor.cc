// The command `strata doctor`, which shows what this machine offers and what is missing, and with
// --links measures the latency and bandwidth between ranks.
#include <algorithm>
#include <filesystem>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/machine/cores.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/share.h"
#include "engine/base/text.h"
#include "engine/job/flags/flags.h"
#include "launcher/command.h"
#include "launcher/commands/links_job.h"
#include "launcher/commands/script_job.h"
#include "launcher/place/machine.h"
#include "launcher/place/remote.h"
#include "launcher/process/supervisor.h"
#include "launcher/report/output_files.h"
#include "launcher/terminal/terminal.h"
#include "launcher/version.h"
#include "lua/host/engine_api.h"

namespace strata::launcher {
namespace {

std::vector<Finding> Engine() {
  try {
    return EngineFindings(lua::LoadEngine().Doctor(), GpuCount());
  } catch (const Error& error) {
    return {{"engine", "cannot be loaded", error.what()}};
  }
}

/// What is installed, and where.
std::vector<Finding> Program() {
  std::error_code error;
  const std::string path = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const std::string models = SharedPath("models");
  return {{"program", Str("strata ", kVersion, ", ", path), ""},
          {"models", models.empty() ? "none" : Str(SharedModels().size(), ", in ", models), ""}};
}

int ShowFindings(bool as_json) {
  std::vector<Finding> findings = Program();
  for (Finding& finding : MachineFindings()) findings.push_back(std::move(finding));
  for (Finding& finding : Engine()) findings.push_back(std::move(finding));
  Print(as_json ? FindingsValue(findings).ToJson(2) + "\n" : FindingsText(findings));
  const bool healthy = std::all_of(findings.begin(), findings.end(),
                                   [](const Finding& finding) { return finding.problem.empty(); });
  return healthy ? 0 : 1;
}

// ---- Links

/// The flags that say between which ranks the links are measured.
FieldTable LinkFields() {
  FieldTable fields = {
      Field::Int("ranks", "for --links: ranks on this machine; none = one for each GPU or core")
          .AtLeast(2)
          .AtMost(LinkTable::kMostRanks)
          .Optional(),
      Field::Choice("transport", {"gloo", "nccl"},
                    "for --links; none = nccl where there is a GPU for each rank, else gloo")
          .Optional(),
      Field::String("output", "for --links: a file for what was measured, for the key links")
          .Optional()};
  for (FieldTable more : {PlacementFields(), RemoteFields()}) {
    for (Field& field : more) {
      const bool is_of_hosts = field.name == "hostfile" || field.name == "include" ||
                               field.name == "exclude" || field.name.starts_with("master_") ||
                               field.name == "ssh" || field.name == "remote_program";
      if (is_of_hosts) fields.push_back(std::move(field));
    }
  }
  return fields;
}

/// The placement of the ranks: on the machines of a host file, else on this machine.
Placement PlacementOfLinks(const Value& own) {
  Placement placement = PlacementHere(own);
  CheckIsWhole(placement, "strata doctor --links");
  const Value& ranks = own["ranks"];
  if (placement.world_size > 0 && !ranks.is_null()) {
    throw ConfigError("--ranks and --hostfile: the host file says how many ranks there are");
  }
  constexpr int kMostCores = 8;
  if (!ranks.is_null()) {
    placement.world_size = static_cast<int>(ranks.as_int());
  } else if (placement.world_size == 0) {
    placement.world_size = GpuCount() > 1 ? GpuCount() : std::clamp(MachineCores(), 2, kMostCores);
  }
  if (placement.world_size < 2 || placement.world_size > LinkTable::kMostRanks) {
    throw ConfigError(Str("--links measures between 2 to ", LinkTable::kMostRanks,
                          " ranks, the host file has ", placement.world_size));
  }
  return placement;
}

class LinksListener : public JobListener {
 public:
  explicit LinksListener(Terminal& terminal) : terminal_(terminal) {}
  void OnMessage(int, const Value& message) override { links_ = LinksOf(message); }
  void OnOutput(int rank, bool, std::string_view line) override {
    terminal_.ErrorLine(Str(rank >= 0 ? Str("[", rank, "] ") : "", line));
  }
  const std::optional<LinkTable>& links() const { return links_; }

 private:
  Terminal& terminal_;
  std::optional<LinkTable> links_;
};

Outcome Measure(Placement placement, const Value& own, JobListener& listener,
                const SupervisorOptions& options) {
  const int here = placement.hosts.empty() ? placement.world_size
                                           : static_cast<int>(placement.hosts[0].slots.size());
  const std::string transport = !own["transport"].is_null() ? own["transport"].as_string()
                                : here <= GpuCount()        ? "nccl"
                                                            : "gloo";
  if (placement.hosts.empty()) {
    LinksJob job(std::move(placement), transport);
    return Supervise(job, listener, options);
  }
  std::vector<RemoteHost> hosts = RemoteHosts(placement, {}, own, ProcessEnvironment());
  for (RemoteHost& host : hosts) SetLinksJob(transport, host.job);
  return Supervise(std::move(hosts), placement.first.store_port, listener, options);
}

int ShowLinks(const Value& own) {
  Terminal terminal;
  LinksListener listener(terminal);
  Placement placement = PlacementOfLinks(own);
  const Value& output = own["output"];
  CheckOutputs(own);
  if (!output.is_null()) CheckWritable(output.as_string());
  const Outcome outcome =
      Measure(std::move(placement), own, listener, SupervisorOptions{.output = &terminal.output()});
  if (outcome.exit_code != 0 || !listener.links()) return Shown(terminal, outcome);
  const LinkTable& links = *listener.links();
  const std::string file = ToValue(links).ToJson(1) + "\n";
  if (!output.is_null()) WriteFile(output.as_string(), file);
  const std::string use = output.is_null()
                              ? "--output=F keeps them, for --links=F of train and plan"
                              : Str("train and plan take them with --links=", output.as_string());
  Print(own["json"].as_bool() ? file
                              : Str(LinksText(links), "\nover ", links.transport(),
                                    ", each way while the other is busy, too; ", use, "\n"));
  return 0;
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  const Flags flags(arguments, command.flags);
  flags.CheckAllTaken();
  if (!flags.rest().empty()) {
    throw ConfigError("doctor takes no arguments, got " + flags.rest()[0]);
  }
  const Value& own = flags.own();
  if (own["links"].as_bool()) return ShowLinks(own);
  for (const Field& field : LinkFields()) {
    if (own[field.name] == field.fallback) continue;
    throw ConfigError(Str("--", field.name, " belongs to --links"));
  }
  return ShowFindings(own["json"].as_bool());
}

}  // namespace

Command DoctorCommand() {
  Command command = {
      .name = "doctor",
      .usage = "[--links [--ranks=N | --hostfile=F] [--output=F]] [--json]",
      .summary = "what this machine offers: cores, memory, devices, LibTorch, limits; links",
      .details =
          "Exits with 1 when something is missing, and says what to do about it.\n"
          "--links measures latency and bandwidth between each two ranks, over the transport that\n"
          "a job would use: on this machine, or on those of a host file. What --output=F keeps\n"
          "is for the key links: plans then know slow links, and predict with them.",
      .flags = {Field::Bool("links", "measures what messages take between ranks").Default(false),
                Field::Bool("json", "for programs").Default(false)},
      .run = &Run};
  for (Field& field : LinkFields()) command.flags.push_back(std::move(field));
  return command;
}

}  // namespace strata::launcher
