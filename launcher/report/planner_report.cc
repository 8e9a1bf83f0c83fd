// Checks which flags belong to the planner, and makes its answers.
#include "launcher/report/planner_report.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/forecast/decisions.h"
#include "engine/forecast/planned_program.h"
#include "engine/schedule/lowering.h"
#include "engine/search/cluster/job_network.h"
#include "engine/search/cluster/simulated_run.h"
#include "engine/search/fit_ways.h"
#include "engine/search/job_search.h"
#include "engine/search/plan_job.h"

namespace strata::launcher {
namespace {

constexpr int kShown = 5;

/// The elements of a flag's list, such as "5:1.5,7:2".
std::vector<std::string> ListOf(const Value& flag) {
  return flag.is_null() ? std::vector<std::string>() : Split(flag.as_string(), ',');
}

search::Cluster ClusterFor(const Job& job, const Value& flags) {
  search::ClusterRequest request = search::ToRequest(flags, job);
  const Parallel& degrees = job.parallel;
  const int ranks =
      std::max(degrees.pipe, 1) * std::max(degrees.data, 1) * std::max(degrees.model, 1);
  const search::Cluster cluster = search::MakeCluster(request);
  const bool says_size = request.gpus > 0 || request.cluster.is_map() || cluster.nodes > 1 ||
                         !cluster.kinds.empty() || !request.links.empty();
  if (says_size || ranks <= cluster.devices()) return cluster;
  const int per_node = cluster.devices_per_node;
  request.gpus = (ranks + per_node - 1) / per_node * per_node;
  return search::MakeCluster(request);
}

/// The job for the planner's cluster: costs and links come from the cluster. The cluster's memory
/// is used as a limit only if the limit decides about recomputation. Otherwise there is no limit,
/// so that a plan that exceeds the memory is shown.
Job PlacedOn(const search::Cluster& cluster, Job job) {
  const bool decides = job.recompute.method == RecomputeSpec::Method::kAuto;
  job.memory = decides ? static_cast<int64_t>(cluster.memory()) : 0;
  job.ranks = {};  // the cluster has them
  job.costs.clear();
  job.links.clear();
  return WithWholeLayers(std::move(job), "--simulate");
}

/// The simulation of a job's own plan on the cluster of the flags.
search::SimulatedRun RunOf(const Job& job, const Value& flags, bool slowed, Script* script) {
  search::Cluster cluster = ClusterFor(job, flags);
  if (!cluster.kinds.empty() || !job.ranks.rules.empty()) {
    search::JobCosts costs(job, script);
    search::SetAbilities(costs, cluster);
  }
  PlanOptions options{
      .gpus = cluster.devices(), .hosts = search::HostsOf(cluster), .links = cluster.links};
  const Value& gpus = flags["gpus"];
  if (!gpus.is_null()) options.world_size = static_cast<int>(gpus.as_int());
  const Job placed = PlacedOn(cluster, job);
  const Plan plan = PlanJob(placed, options, script);
  const schedule::Program program =
      TrainingProgram(placed, plan, static_cast<int>(plan.batch.micro_batches), script);
  schedule::LowerAndCheck(program);
  const auto slow = [&](const char* flag) {
    return slowed ? ListOf(flags[flag]) : std::vector<std::string>();
  };
  return SimulateRun(placed, plan, program, cluster, slow("straggler"), slow("slow_link"), script);
}

PlanNeeds NeedsOf(const search::SimulatedRun& run) {
  const search::Candidate& candidate = run.candidate;
  return {.memory = static_cast<int64_t>(run.usual.memory),
          .step = run.usual.step,
          .samples = candidate.micro_batches * candidate.micro_batch_size * candidate.data,
          .ranks = candidate.ranks(),
          .data = candidate.data,
          .layers = candidate.bounds.back()};
}

/// Predicts jobs on the cluster of the flags.
PredictNeeds PredictionsOn(const Value& flags, Script* script) {
  return [&flags, script](const Job& job) -> std::optional<PlanNeeds> {
    try {
      return NeedsOf(RunOf(job, flags, /*slowed=*/false, script));
    } catch (const ConfigError&) {
      return std::nullopt;  // this job is impossible there
    }
  };
}

std::string Simulated(const Job& job, const Value& flags, Script* script) {
  const search::SimulatedRun run = RunOf(job, flags, /*slowed=*/true, script);
  const int fullest = search::FullestRank(run);
  const bool fits = fullest < 0, is_alike = run.cluster.abilities.empty();
  const PredictNeeds predict = PredictionsOn(flags, script);
  std::vector<FitWay> ways;
  if (!fits && is_alike) {
    ways = WaysToFit(job, NeedsOf(run), static_cast<int64_t>(run.cluster.memory()), predict);
  }
  if (flags["json"].as_bool()) {
    Value record = RunRecord(run);
    if (!fits && is_alike) record.Set("ways", FitWaysValue(ways));
    return record.ToJson(2) + "\n";
  }
  std::string text;
  if (!fits) {
    const int64_t needed = run.usual.ranks[fullest].memory.total();
    const std::vector<double> memories = MemoriesOf(run.candidate, run.cluster);
    text +=
        Str("this plan does not fit: ", is_alike ? "the fullest rank" : Str("pipe rank ", fullest),
            " needs ", FormatBytes(static_cast<double>(needed)),
            is_alike ? ", a device has " : ", its devices have ",
            FormatBytes(is_alike ? run.cluster.memory() : memories[fullest]), " for the training\n",
            is_alike ? FitWaysText(ways) : "", "\n");
  }
  text += RunText(run);
  const std::string note = RecomputeNote(job, predict);
  return note.empty() ? text : Str(text, "note: ", note, "\n");
}

/// Says what a search has done so far, while it takes long: in one line of the terminal that is
/// written again and again, or in lines about progress.
class SearchStatus {
 public:
  SearchStatus() : is_seen_(::isatty(STDERR_FILENO) == 1) {}
  ~SearchStatus() {
    if (is_shown_) std::fputs("\r\x1b[K", stderr);
  }
  SearchStatus(const SearchStatus&) = delete;

  void Show(const search::FoundPlans& so_far) {
    using Clock = std::chrono::steady_clock;
    if (!is_seen_) return line_.Advance(so_far.considered - line_.done());
    if (Clock::now() < next_) return;
    next_ = Clock::now() + std::chrono::milliseconds(500);
    is_shown_ = true;
    std::fprintf(stderr, "\rsearching: %s ways to train, %s steps simulated\x1b[K",
                 FormatCount(so_far.considered).c_str(), FormatCount(so_far.simulated).c_str());
    std::fflush(stderr);
  }

 private:
  const bool is_seen_;
  bool is_shown_ = false;
  ProgressLine line_{"searching ways to train", 0, ProgressForm::kCount};
  std::chrono::steady_clock::time_point next_ =
      std::chrono::steady_clock::now() + std::chrono::seconds(1);
};

}  // namespace

FieldTable PlannerFields() {
  FieldTable fields = {
      Field::Bool("auto", "searches the best way to train on a cluster").Default(false),
      Field::Bool("simulate", "the job's own plan on a cluster").Default(false)};
  for (const Field& field : search::ClusterFlags()) fields.push_back(field);
  fields.push_back(Field::String("straggler", "slow ranks for --simulate, 5:1.5,7:2").Optional());
  fields.push_back(
      Field::String("slow_link", "slow links for --simulate, 0-8:4,node3:2").Optional());
  return fields;
}

bool AsksPlanner(const Value& flags, const Value& given) {
  const bool searches = flags["auto"].as_bool(), simulates = flags["simulate"].as_bool();
  if (searches && simulates) throw ConfigError("--auto and --simulate: give one of them");
  for (const char* name : {"cluster", "gpus", "link"}) {
    if (!flags[name].is_null() && !searches && !simulates) {
      throw ConfigError(Str("--", name, " belongs to --auto or --simulate"));
    }
  }
  if (!flags["budget"].is_null() && !searches) throw ConfigError("--budget belongs to --auto");
  for (const char* name : {"straggler", "slow_link"}) {
    if (!flags[name].is_null() && !simulates) {
      throw ConfigError(Str("--", name, " belongs to --simulate"));
    }
  }
  if (!searches && !simulates) return false;
  if (!flags["nproc"].is_null()) {
    throw ConfigError("--nproc says how many ranks run here; --auto and --simulate take --gpus");
  }
  const char* measured = given.Has("costs") ? "costs" : "write_costs";
  if (given.Has("costs") || !flags["write_costs"].is_null()) {
    throw ConfigError(
        Str("--", measured, " is of this machine, --auto and --simulate of a cluster"));
  }
  return true;
}

std::string PlannerReport(const Job& job, const Value& given, const Value& flags, Script* script) {
  if (flags["simulate"].as_bool()) return Simulated(job, flags, script);
  if (given.Has("schedule") && job.schedule.name == "inference") {
    throw ConfigError("--auto searches how to train, and --schedule=inference has no backwards");
  }
  search::SearchLimits limits = search::ToLimits(flags);
  SearchStatus status;
  limits.progress = [&](const search::FoundPlans& so_far) { status.Show(so_far); };
  const search::JobSearch search =
      SearchFor(job, given, search::ToRequest(flags, job), kShown, script, limits);
  return flags["json"].as_bool() ? SearchRecord(search).ToJson(2) + "\n" : SearchText(search);
}

}  // namespace strata::launcher
