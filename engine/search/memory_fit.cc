#include "engine/search/memory_fit.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fields/quantity.h"
#include "engine/base/text.h"
#include "engine/forecast/evaluate.h"
#include "engine/forecast/memory_forecast.h"
#include "engine/forecast/planned_program.h"
#include "engine/forecast/users_program.h"
#include "engine/plan/cut/cut.h"
#include "engine/plan/plan_text.h"
#include "engine/plan/recompute.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/program_search.h"
#include "engine/schedule/row_walk.h"
#include "engine/search/recompute_choice.h"

namespace strata {
namespace {

using schedule::Program;

bool IsByMemory(const Job& job) {
  return partition::MethodGoesBy(job.partition) == partition::GoesBy::kMemory;
}

/// The most micro-batches that are alive on each stage, and its receive slots.
std::vector<StageSetting> SettingsOf(const Program& program) {
  std::vector<StageSetting> settings(static_cast<size_t>(program.stages()));
  const std::vector<int> slots = schedule::StageBuffers(program);
  std::vector<int> alive(settings.size());
  for (size_t s = 0; s < settings.size(); ++s) settings[s] = {.live = 0, .slots = slots[s]};
  schedule::RowWalk(program).OverAll([&](const schedule::Step& step) {
    const auto s = static_cast<size_t>(step.stage());
    alive[s] += static_cast<int>(step.Change({.kept = 1, .deferred = 1}));
    settings[s].live = std::max(settings[s].live, alive[s]);
  });
  return settings;
}

/// The programs to fit, without recomputation. For the schedule "auto" these are all candidates.
std::vector<Program> ProgramsToFit(const Job& job, const Plan& plan, const Extent& extent,
                                   Script* script) {
  if (IsUsers(job)) return {UsersProgram(job, extent, script)};
  const schedule::Sizes sizes = {extent.ranks, job.stages_per_rank, extent.micro_batches};
  if (job.schedule.name != "auto") return {schedule::Generate(job.schedule.name, sizes)};
  std::vector<Program> programs;
  for (const std::string& name : schedule::TriedSchedules()) {
    if (!schedule::Fits(name, sizes)) continue;
    Program program = schedule::Generate(name, sizes);
    if (program.stage_ranks == plan.stage_ranks()) programs.push_back(std::move(program));
  }
  schedule::ProgramSearchOptions options = AutoOptions(job, plan);
  options.byte_limit = 0;
  options.stage_ranks = plan.stage_ranks();
  programs.push_back(SearchProgram(sizes, options).program);
  return programs;
}

/// The plan with the recomputation of `choice`.
Plan Recomputing(Plan plan, const RecomputeChoice& choice) {
  for (size_t i = 0; i < plan.layers.size(); ++i) plan.layers[i].segment = choice.segments[i];
  return plan;
}

/// The choice with which some program has the shortest step; if none fits, the choice that needs
/// the least memory. The text is the program's name.
std::pair<RecomputeChoice, std::string> BestChoice(const Job& job, const Plan& plan,
                                                   const std::vector<Program>& programs) {
  const RecomputeChooser chooser(job, plan);
  const auto price = [&](const RecomputeChoice& choice, const Program& program) {
    if (!choice.fits) return static_cast<double>(choice.least.total());
    const Plan planned = Recomputing(plan, choice);
    return Evaluate(PlacedHere(job, planned, chooser.costs(), choice.costs, {}),
                    schedule::AddRecomputation(program, RecomputedStages(planned)))
        .step;
  };
  std::pair<RecomputeChoice, std::string> best;
  double least = 0;
  for (const Program& program : programs) {
    RecomputeChoice choice = chooser.Choose(program);
    const bool is_first = &program == &programs.front();
    if (!is_first && choice.fits < best.first.fits) continue;
    const double now = price(choice, program);
    if (!is_first && choice.fits == best.first.fits && now >= least) continue;
    least = now;
    best = {std::move(choice), program.name};
  }
  return best;
}

/// What a checked step needs, for a message about too little memory; "" where steps need more.
std::string CheckPart(const RankMemory& rank) {
  if (rank.check <= rank.activations + rank.buffers) return "";
  return Str(", or in a checked step ", FormatBytes(static_cast<double>(rank.check)),
             " in place of activations");
}

[[noreturn]] void RefuseMemory(const Job& job, const Plan& plan, const RankMemory& rank,
                               const std::string& schedule) {
  const auto bytes = [](int64_t count) { return FormatBytes(static_cast<double>(count)); };
  const bool can_shard = job.zero == 0 && plan.topology.Size(kDataAxis) > 1;
  throw ConfigError(Str(
      "memory: rank ", rank.rank, job.stages_per_rank == 1 ? " needs at least " : " would need ",
      FormatAtLeast(rank.total()), " of tensors with schedule ", schedule,
      ", whatever is recomputed (weights ", bytes(rank.weights), ", gradients ",
      bytes(rank.gradients), ", optimizer ", bytes(rank.optimizer), ", activations ",
      bytes(rank.activations), ", buffers ", bytes(rank.buffers), CheckPart(rank),
      "), the job allows ", bytes(plan.MemoryOf(rank.rank)), "; ",
      IsByMemory(job) ? "" : "partition = \"memory\", ", can_shard ? "zero = 1, " : "",
      "smaller micro-batches or more stages need less"));
}

/// The segments of a stage, for example "1 to 2, 3".
std::string SegmentsText(const Plan& plan, const StagePlan& stage) {
  const CutNames names = CutNamesOf(plan);
  std::vector<std::string> segments;
  for (int begin = stage.begin; begin < stage.end;) {
    const int segment = plan.layers[begin].segment;
    int end = begin + 1;
    while (end < stage.end && plan.layers[end].segment == segment) ++end;
    if (segment >= 0) segments.push_back(names.Range(begin, end));
    begin = end;
  }
  return Str(
      segments.size() == 1 && segments[0].find(' ') == std::string::npos ? "layer " : "layers ",
      Join(segments, ", "));
}

/// Says which layers run forward again and how much work that is.
std::string ChoiceText(const Plan& plan, const RecomputeChoice& choice) {
  constexpr size_t kShown = 4;
  std::vector<std::string> stages;
  for (const int s : RecomputedStages(plan)) {
    const StageCost& cost = choice.costs[s];
    const double once = cost.forward.seconds + cost.input_grad.seconds + cost.weight_grad.seconds;
    const double share = once > 0 ? cost.recompute.seconds / once : 0;
    stages.push_back(Str("stage ", s, " runs ", SegmentsText(plan, plan.stages[s]),
                         " forward again, ", std::lround(100 * share), "% more work"));
  }
  const std::string limit =
      plan.memories.empty() ? FormatBytes(static_cast<double>(plan.memory)) : "each rank's memory";
  if (stages.empty()) return Str("recompute = \"auto\": all fits into ", limit);
  const size_t more = stages.size() > kShown ? stages.size() - kShown : 0;
  stages.resize(stages.size() - more);
  return Str("recompute = \"auto\": to keep to ", limit, " ", Join(stages, "; "),
             more > 0 ? Str("; and so do ", more, " more stages") : "");
}

}  // namespace

std::vector<StageSetting> PlanSettings(const Job& job, const Extent& extent, Script* script) {
  const bool is_limited =
      job.memory > 0 ||
      std::ranges::any_of(job.ranks.rules, [](const RankRule& rule) { return rule.memory > 0; });
  const bool matters = is_limited || IsByMemory(job);
  if (!matters || job.schedule.name == "auto") return {};
  if (IsUsers(job)) return SettingsOf(UsersProgram(job, extent, script));
  return SettingsOf(schedule::Generate(job.schedule.name,
                                       {extent.ranks, job.stages_per_rank, extent.micro_batches}));
}

void FitRecomputation(const Job& job, Script* script, Plan& plan) {
  if (job.recompute.method != RecomputeSpec::Method::kAuto) return;
  if (plan.memory == 0) {
    plan.notices.push_back(
        "recompute = \"auto\": nothing is recomputed, for there is no limit, memory = \"80GB\"");
    return;
  }
  const Extent extent = {plan.pipe(), static_cast<int>(plan.batch.micro_batches)};
  const auto [choice, schedule] = BestChoice(job, plan, ProgramsToFit(job, plan, extent, script));
  if (!choice.fits) RefuseMemory(job, plan, choice.least, schedule);
  plan = Recomputing(std::move(plan), choice);
  plan.notices.push_back(ChoiceText(plan, choice));
}

void CheckMemory(const Job& job, const Plan& plan, const Program& program) {
  if (plan.memory == 0) return;
  const std::vector<RankMemory> ranks = ForecastMemory(job, plan, *plan.costs, program);
  for (const RankMemory& rank : ranks) {
    const int64_t limit = plan.MemoryOf(rank.rank);
    if (rank.total() <= limit) continue;
    throw ConfigError(Str("memory: rank ", rank.rank, " would need ", FormatAtLeast(rank.total()),
                          " of tensors with schedule ", program.name, CheckPart(rank),
                          ", the job allows ", FormatBytes(static_cast<double>(limit)),
                          "; partition = \"memory\", recompute, smaller micro-batches, ",
                          "schedule = \"auto\" or more ranks need less"));
  }
}

}  // namespace strata
