#include "engine/search/job_search.h"

#include <algorithm>
#include <array>

#include "engine/base/error.h"
#include "engine/base/fields/quantity.h"
#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"
#include "engine/forecast/planned_program.h"
#include "engine/job/parameter_groups.h"
#include "engine/plan/cut/cut.h"
#include "engine/schedule/generators/generators.h"
#include "engine/search/cluster/job_network.h"
#include "engine/search/cluster/simulated_run.h"
#include "engine/search/plan_job.h"

namespace strata::search {
namespace {

// ---- Keys that are kept

/// The job's schedule. Throws ConfigError unless the planner supports it.
std::string HeldSchedule(const Job& job) {
  const std::string& name = job.schedule.name;
  if (name == "csv" || name == "function") {
    throw ConfigError(
        "the planner chooses among schedules with names, not a user's own; leave schedule out");
  }
  schedule::Fits(name, {});  // throws for an unknown name
  return name;
}

Recompute HeldRecompute(const RecomputeSpec& spec) {
  using Method = RecomputeSpec::Method;
  if (spec.method == Method::kNone) return Recompute::kNone;
  if (spec.method == Method::kStages) return Recompute::kStages;
  if (spec.method == Method::kEvery && spec.every == 1) return Recompute::kLayers;
  throw ConfigError(
      "the planner tries recompute = false, true, {every=1} and \"auto\"; leave it out, or give "
      "one of these");
}

/// The bounds that the job gives; their number also gives the number of stages. Throws ConfigError
/// unless they are valid for these layers.
std::vector<int> HeldBounds(const Job& job) {
  const int bounds = static_cast<int>(job.partition.bounds.size());
  const std::vector<int64_t> unused(job.layers.size());  // only cuts by parameters use them
  return partition::Cut(job.partition, job.layers, unused, std::max(bounds - 1, 1), nullptr);
}

Space HeldSpace(const Job& job, const Value& given) {
  const Batch batch = ResolveBatch(job.batch);
  Space space;
  space.batch = batch.size * std::max(job.parallel.data, 1);
  const Value& parallel = given["parallel"];
  const Value& sizes = given["batch"];
  if (parallel.is_map()) {
    if (parallel.Has("pipe")) space.pipe = {job.parallel.pipe};
    if (parallel.Has("data")) space.data = {job.parallel.data};
    if (parallel.Has("model")) space.model = {job.parallel.model};
  }
  if (sizes.is_map()) {
    if (sizes.Has("micro_batches")) space.micro_batches = {batch.micro_batches};
    if (sizes.Has("micro_batch_size")) space.micro_batch_sizes = {batch.micro_batch_size};
  }
  if (given.Has("schedule") && job.schedule.name != "auto") space.schedules = {HeldSchedule(job)};
  if (given.Has("stages_per_rank") && job.stages_per_rank > 0)
    space.stages_per_rank = {job.stages_per_rank};
  if (given.Has("recompute") && job.recompute.method != RecomputeSpec::Method::kAuto)
    space.recompute = {HeldRecompute(job.recompute)};
  if (given.Has("zero")) space.zero = {job.zero};
  if (SeesAtOnce(job.optimizer) != OptionTable::Sees::kElements) {
    space.zero = {0};  // such an optimizer cannot share its parameters over ranks
    space.model = {1};
  }
  if (given.Has("partition") && job.partition.method != "auto") {
    if (job.partition.method != "cuts") {
      throw ConfigError(
          "the planner finds the cuts itself: leave partition out, or give bounds "
          "such as {0, 19, 22}");
    }
    space.bounds = HeldBounds(job);
  }
  return space;
}

// ---- The choice of single layers

/// A plan with a longer stage keeps its coarse way: the choice for 100 layers takes half a second,
/// and its time grows with the square of their number.
constexpr int kMostChosen = 100;

/// The candidate's own job on the cluster, whose costs and links hold.
Job JobOf(const Candidate& candidate, Job job) {
  job.parallel = {candidate.pipe, candidate.data, candidate.model};
  job.schedule = {candidate.schedule, "", {}};
  job.stages_per_rank = candidate.stages_per_rank;
  job.batch = {0, candidate.micro_batches, candidate.micro_batch_size};
  job.partition = {"cuts", candidate.bounds, {}};
  job.recompute = {.method = RecomputeSpec::Method::kAuto};
  job.zero = candidate.zero;
  job.memory = candidate.memory;
  job.ranks = {};  // the cluster has them
  job.costs.clear();
  job.links.clear();
  return job;
}

/// Chooses layer by layer what the plan recomputes, if it recomputes something and its step gets
/// shorter.
void ChooseLayers(const Job& job, const Cluster& cluster, Script* script, FoundPlan& found) {
  Candidate candidate = found.candidate;
  if (candidate.recompute == Recompute::kNone) return;
  for (int stage = 0; stage < candidate.stages(); ++stage) {
    if (candidate.bounds[stage + 1] - candidate.bounds[stage] > kMostChosen) return;
  }
  candidate.recompute = Recompute::kAuto;
  candidate.memory = static_cast<int64_t>(cluster.memory());
  const Job placed = JobOf(candidate, job);
  try {
    const PlanOptions options = {
        .gpus = cluster.devices(), .hosts = HostsOf(cluster), .links = cluster.links};
    const Plan plan = PlanJob(placed, options, script);
    const auto micro_batches = static_cast<int>(candidate.micro_batches);
    const StepEvaluation step =
        SimulateRun(placed, plan, TrainingProgram(placed, plan, micro_batches, script), cluster, {},
                    {}, script)
            .usual;
    if (step.step < found.forecast.step) found = {std::move(candidate), step};
  } catch (const ConfigError&) {
    // No choice fits: that of a long stage is not exact.
  }
}

void ChooseLayers(const Job& job, const Space& space, const Cluster& cluster, Script* script,
                  FoundPlans& found) {
  if (!space.recompute.empty()) return;
  for (FoundPlan& plan : found.best) ChooseLayers(job, cluster, script, plan);
  std::ranges::stable_sort(found.best, {},
                           [](const FoundPlan& plan) { return plan.forecast.step; });
}

// ---- Changes of the cluster

void Ask(JobCosts& costs, const Cluster& cluster, const Space& space, std::string change,
         Script* script, const SearchLimits& limits, JobSearch& search) {
  JobNetwork network(costs, cluster);
  FoundPlans result = SearchPlans(network, cluster, space, 1, limits);
  ChooseLayers(costs.job(), space, cluster, script, result);
  WhatIf what_if{.change = std::move(change), .is_cut_short = result.is_cut_short};
  constexpr double kWorthIt = 0.999;
  const double now = search.result.best.front().forecast.step;
  if (!result.best.empty() && result.best.front().forecast.step < kWorthIt * now) {
    what_if.step = result.best.front().forecast.step;
    what_if.candidate = result.best.front().candidate;
  }
  search.what_ifs.push_back(std::move(what_if));
}

/// A part of the limits. The search for plans gets seven tenths, and each of the at most three
/// changes of the cluster one.
SearchLimits Tenths(SearchLimits limits, int tenths) {
  limits.actions = limits.actions / 10 * tenths;
  limits.seconds = limits.seconds / 10 * tenths;
  return limits;
}

void AskAll(JobCosts& costs, const Space& space, Script* script, const SearchLimits& limits,
            JobSearch& search) {
  const Cluster& cluster = search.cluster;
  Cluster larger = cluster;
  larger.device.memory *= 2;
  for (RankAbility& device : larger.abilities) device.memory *= 2;
  const std::string twice = cluster.abilities.empty()
                                ? Str(FormatBytes(larger.device.memory), " per device")
                                : "twice the memory per device";
  Ask(costs, larger, space, twice, script, limits, search);
  if (cluster.links) return;  // measured links are not changed
  if (cluster.devices_per_node > 1) {
    Cluster faster = cluster;
    faster.within.bandwidth *= 2;
    Ask(costs, faster, space, FormatBandwidth(faster.within.bandwidth) + " within nodes", script,
        limits, search);
  }
  if (cluster.nodes > 1) {
    Cluster faster = cluster;
    faster.between.bandwidth *= 2;
    Ask(costs, faster, space, FormatBandwidth(faster.between.bandwidth) + " between nodes", script,
        limits, search);
  }
}

// ---- Text

std::string ShowRecompute(Recompute recompute) {
  constexpr const char* kTexts[] = {"no", "layers", "stages", "auto"};
  return kTexts[static_cast<int>(recompute)];
}

/// A part of the step in seconds. All but the last are means over the ranks until the last backward
/// ends.
struct Part {
  const char* name;
  double seconds;
};
std::array<Part, 4> PartsOf(const StepEvaluation& forecast) {
  double busy = 0;
  for (const RankForecast& rank : forecast.ranks) busy += rank.busy;
  busy /= static_cast<double>(forecast.ranks.size());
  const double again = std::min(busy, forecast.recompute);
  return {Part{"computing", busy - again}, Part{"computing again", again},
          Part{"waiting", forecast.pipeline - busy},
          Part{"gradients and optimizer", forecast.step - forecast.pipeline}};
}

/// The reason column. For the best plan: the parts of its step. For others: what costs them most
/// time compared with the best.
std::string Reason(const StepEvaluation& forecast, const StepEvaluation& best) {
  const std::array<Part, 4> parts = PartsOf(forecast), of_best = PartsOf(best);
  if (&forecast == &best) {
    std::string text;
    for (const Part& part : parts) {
      if (part.seconds < 0.005 * best.step) continue;
      text += Str(text.empty() ? "" : ", ", FormatShare(part.seconds / best.step), " ", part.name);
    }
    return text;
  }
  size_t most = 0;
  const auto lost = [&](size_t i) { return parts[i].seconds - of_best[i].seconds; };
  for (size_t i = 1; i < parts.size(); ++i) {
    if (lost(i) > lost(most)) most = i;
  }
  return Str("+", FormatShare(forecast.step / best.step - 1), ": ", FormatSeconds(lost(most)),
             " more ", parts[most].name);
}

std::string Short(const Candidate& candidate) {
  return Str("pipe ", candidate.pipe, ", data ", candidate.data, ", model ", candidate.model, ", ",
             candidate.schedule, ", ", candidate.micro_batches, " x ", candidate.micro_batch_size);
}

/// What a search that was cut short may have missed; "" if nothing.
std::string MissedText(const FoundPlans& result) {
  if (result.missed == 0) return "";  // the first is the best even if the search was cut short
  return Str("\nthe search ended at ",
             result.is_late ? "its limit of seconds" : "its limit of simulated steps",
             ": a plan that it has not looked at is at most ", FormatShare(result.missed),
             " faster; a larger --budget looks at more\n");
}

/// The key `ranks` for the first devices of a cluster whose devices differ; "" for others.
std::string RanksLine(const Cluster& cluster, int ranks) {
  std::vector<std::string> entries;
  for (int begin = 0, end = 0; begin < ranks && !cluster.abilities.empty(); begin = end) {
    const RankAbility& ability = cluster.abilities[begin];
    while (end < ranks && cluster.abilities[end] == ability) ++end;
    entries.push_back(Str("{\"", begin, "-", end - 1, "\", speed=", Printf("%.3g", ability.speed),
                          ", memory=", ability.memory, "}"));
  }
  return entries.empty() ? "" : Str("  ranks           = {", Join(entries, ", "), "},\n");
}

void CheckFound(const JobSearch& search) {
  if (!search.result.best.empty()) return;
  const std::string notices = search.notices.empty() ? "" : "\n" + Join(search.notices, "\n");
  if (search.result.is_cut_short) {
    throw ConfigError(Str("the search found no plan in time; a larger --budget looks at more, and ",
                          "keys such as --pipe that are given leave less to search", notices));
  }
  if (search.result.least_memory > 0) {
    // Of some candidates only a bound is known, of others only the memory of their fastest cut.
    throw ConfigError(Str(
        "no plan fits ", search.cluster.Describe(), ": the smallest that was tried needs about ",
        FormatBytes(search.result.least_memory), " on its fullest device", notices));
  }
  throw ConfigError(Str("no plan of these keys can be for ", Plural(search.batch, "sample"),
                        " a step on ", search.cluster.Describe(), notices));
}

}  // namespace

const FieldTable& ClusterFlags() {
  static const FieldTable kFields = {
      Field::Any("cluster", "a ready cluster, 8xH100, 8xA100-80, 4xL4, cpu, ..., or a table")
          .Optional(),
      Field::Int("gpus", "devices of the cluster, in all").AtLeast(1).AtMost(1 << 20).Optional(),
      Field::String("link", "between nodes, or within,between: \"ndr\", \"25GB/s:5us\"").Optional(),
      Field::Number("budget", "seconds after which a search gives the best so far (10)")
          .Above(0)
          .Optional()};
  return kFields;
}

ClusterRequest ToRequest(const Value& options, const Job& job) {
  ClusterRequest request;
  request.cluster = options["cluster"];
  if (!options["gpus"].is_null()) request.gpus = static_cast<int>(options["gpus"].as_int());
  if (job.memory > 0) request.memory = job.memory;
  if (!options["link"].is_null()) request.link = options["link"].as_string();
  request.links = job.links;
  return request;
}

SearchLimits ToLimits(const Value& options) {
  const Value& budget = options["budget"];
  return {.seconds = budget.is_null() ? 10 : budget.as_double()};
}

JobSearch SearchFor(const Job& asked, const Value& given, const ClusterRequest& request, int top,
                    Script* script, const SearchLimits& limits) {
  const Job job = WithWholeLayers(asked, "the search");
  JobSearch search;
  search.cluster = MakeCluster(request);
  Space space = HeldSpace(job, given);
  search.batch = space.batch;
  JobCosts costs(job, script);
  SetAbilities(costs, search.cluster);
  JobNetwork network(costs, search.cluster);
  search.result = SearchPlans(network, search.cluster, space, top, Tenths(limits, 7));
  search.notices = costs.refusals();
  CheckFound(search);
  space.below = search.result.best.front().forecast.step;
  ChooseLayers(job, space, search.cluster, script, search.result);
  AskAll(costs, space, script, Tenths(limits, 1), search);
  return search;
}

Value KeysOf(const Candidate& candidate) {
  Value keys = strata::KeysOf(candidate);
  if (candidate.recompute == Recompute::kLayers) {
    keys.Set("recompute", Value::MakeMap({{"every", 1}}));
  } else if (candidate.recompute == Recompute::kAuto) {
    keys.Set("recompute", "auto").Set("memory", candidate.memory);
  } else {
    keys.Set("recompute", candidate.recompute == Recompute::kStages);
  }
  return keys.Set("zero", candidate.zero);
}

std::string ScriptLines(const Candidate& candidate) {
  std::string text;
  const Value keys = KeysOf(candidate);
  for (const auto& [name, value] : keys.as_map()) {
    text += Str("  ", name, std::string(16 - name.size(), ' '), "= ", value.ToLua(), ",\n");
  }
  return text;
}

std::string SearchText(const JobSearch& search) {
  const FoundPlans& result = search.result;
  const FoundPlan& best = result.best.front();
  std::string text = Str(search.cluster.Describe(), "; ", Plural(search.batch, "sample"),
                         " a step\n", FormatCount(result.considered), " ways to train, ",
                         FormatCount(result.simulated), " steps simulated\n\n");
  TextTable table({"pipe", "data", "model", "schedule", "stages/rank", "micro-batches", "recompute",
                   "zero", "step", "bubble", "memory", "why"});
  for (const FoundPlan& found : result.best) {
    const Candidate& candidate = found.candidate;
    const StepEvaluation& forecast = found.forecast;
    table.Add({Str(candidate.pipe), Str(candidate.data), Str(candidate.model), candidate.schedule,
               Str(candidate.stages_per_rank),
               Str(candidate.micro_batches, " x ", candidate.micro_batch_size),
               ShowRecompute(candidate.recompute), Str(candidate.zero),
               FormatSeconds(forecast.step), FormatShare(forecast.bubble),
               FormatBytes(static_cast<double>(forecast.memory)), Reason(forecast, best.forecast)});
  }
  text += table.Render();
  text += MissedText(result);
  const int idle = search.cluster.devices() - best.candidate.ranks();
  if (idle > 0)
    text += Str("\n", Plural(idle, "device"), " would not help and have nothing to do\n");
  text += "\nwhat would beat the first:\n";
  for (const WhatIf& what_if : search.what_ifs) {
    text +=
        Str("  ", what_if.change, ": ",
            what_if.step == 0
                ? std::string(what_if.is_cut_short ? "nothing faster found in time" : "no faster")
                : Str(FormatSeconds(what_if.step), " (",
                      FormatShare(1 - what_if.step / best.forecast.step), " less), ",
                      Short(what_if.candidate)),
            "\n");
  }
  for (const std::string& notice : search.notices) text += Str("note: ", notice, "\n");
  return text + "\nthe first in a script:\n" + ScriptLines(best.candidate) +
         RanksLine(search.cluster, best.candidate.ranks());
}

Value SearchRecord(const JobSearch& search) {
  Value::List plans, what_ifs;
  const StepEvaluation& best = search.result.best.front().forecast;
  for (const FoundPlan& found : search.result.best) {
    const StepEvaluation& forecast = found.forecast;
    Value plan;
    plan.Set("step", forecast.step).Set("pipeline", forecast.pipeline);
    plan.Set("bubble", forecast.bubble).Set("recompute_seconds", forecast.recompute);
    plan.Set("memory", forecast.memory).Set("why", Reason(forecast, best));
    plans.push_back(plan.Set("keys", KeysOf(found.candidate)));
  }
  for (const WhatIf& what_if : search.what_ifs) {
    Value value;
    value.Set("change", what_if.change);
    if (what_if.step > 0) value.Set("step", what_if.step).Set("keys", KeysOf(what_if.candidate));
    what_ifs.push_back(std::move(value));
  }
  Value record;
  record.Set("cluster", search.cluster.Describe()).Set("devices", search.cluster.devices());
  record.Set("batch", search.batch).Set("considered", search.result.considered);
  record.Set("simulated", search.result.simulated).Set("plans", std::move(plans));
  if (search.result.is_cut_short) record.Set("missed", search.result.missed);
  record.Set("what_if", std::move(what_ifs));
  return record.Set("notices", Value::List(search.notices.begin(), search.notices.end()));
}

}  // namespace strata::search
