#include "engine/search/plan_choice.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/forecast/evaluate.h"
#include "engine/forecast/planned_program.h"
#include "engine/plan/cut/all_cuts.h"
#include "engine/plan/cut/cut.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/stage_map.h"
#include "engine/search/climb.h"
#include "engine/search/cluster/cluster_forecast.h"
#include "engine/search/cut_evaluator.h"
#include "engine/search/memory_fit.h"
#include "engine/search/rank_cuts.h"

namespace strata {
namespace {

using partition::GoesBy;
using schedule::Program;

/// Without a memory limit no plan may take more than this times the memory of the simplest one.
constexpr double kMoreMemory = 1.1;
/// A schedule whose price is higher than the best by more than this share is not tried with cuts of
/// its own.
constexpr double kNearly = 0.05;
/// A plan that has never run here must be better by this share than those that have: the times of
/// equal runs differ by as much.
constexpr double kNews = 0.05;
/// Limits of the effort: kMostSearched is in actions of one program that is searched, kMostTried in
/// actions of all steps that are evaluated. With them a choice takes a second or two and is the
/// same on every machine.
constexpr int64_t kMostSearched = 20'000, kMostTried = 6'000'000;
/// The limit in actions of all programs that are searched only to try cuts; and again for plans
/// that ran before.
constexpr int64_t kMostSearchedInAll = 30'000;
constexpr int kMostStagesPerRank = 4;
/// A bound is moved if the price falls by at least this share.
constexpr double kLeastMove = 1e-3;
/// The most steps of a search for cuts into more stages than ranks.
constexpr double kMostCuts = 1e7;
/// The number of cuts from CutsByRank() that are tried for each layout.
constexpr int kMostRankCuts = 20;

bool IsCutFreely(const Job& job) {
  return partition::MethodGoesBy(job.partition) == GoesBy::kGuess;
}

/// The job with the simplest choice for everything that it leaves open: cuts by parameters, 1f1b,
/// one stage on each rank.
Job Simplest(Job job) {
  if (IsCutFreely(job)) job.partition = {};
  if (job.schedule.name == "auto") job.schedule = {};
  if (job.stages_per_rank == 0) job.stages_per_rank = 1;
  return job;
}

/// The possible numbers of stages per rank, at least one. Written cuts determine it. If the job
/// names a partition method, it is 1, unless the schedule needs more.
std::vector<int> StageCounts(const Job& job, const Extent& extent) {
  if (job.stages_per_rank > 0) return {job.stages_per_rank};
  if (IsUsers(job)) return {1};
  if (job.partition.method == "cuts") {
    return {std::max(1, (static_cast<int>(job.partition.bounds.size()) - 1) / extent.ranks)};
  }
  if (!IsCutFreely(job) && job.schedule.name == "auto") return {1};
  std::vector<int> counts;
  for (int v = 1; v <= kMostStagesPerRank; ++v) {
    const bool fits = job.schedule.name == "auto" ||
                      schedule::Fits(job.schedule.name, {extent.ranks, v, extent.micro_batches});
    const auto layers = static_cast<double>(job.layers.size());
    if (v > 1 && 0.5 * v * extent.ranks * layers * layers > kMostCuts) break;
    if (fits && v * extent.ranks <= static_cast<int>(job.layers.size())) counts.push_back(v);
  }
  if (counts.empty()) counts.push_back(1);
  return counts;
}

/// A placement of stages on ranks, and the schedules that use it, the simplest first.
struct StageLayout {
  int stages_per_rank = 1;
  std::vector<int> stage_ranks;
  std::vector<std::string> schedules;
};

std::vector<std::string> SchedulesFor(const Job& job, const schedule::Sizes& sizes) {
  if (job.schedule.name != "auto") return {job.schedule.name};
  std::vector<std::string> names = schedule::TriedSchedules();
  std::ranges::stable_sort(names, {}, schedule::TurnOf);
  std::erase_if(names, [&](const std::string& name) { return !schedule::Fits(name, sizes); });
  return names;
}

std::vector<StageLayout> LayoutsOf(const Job& job, const Extent& extent, bool has_seconds,
                                   Script* script) {
  if (IsUsers(job)) {
    const int v = std::max(job.stages_per_rank, 1);
    return {{v, UsersStageRanks(job, extent, script), {job.schedule.name}}};
  }
  std::vector<StageLayout> layouts;
  std::vector<int> counts = StageCounts(job, extent);
  if (!has_seconds) counts.resize(1);
  for (const int v : counts) {
    const schedule::Sizes sizes = {extent.ranks, v, extent.micro_batches};
    const auto first = static_cast<std::ptrdiff_t>(layouts.size());
    const auto add = [&](std::vector<int> map) -> StageLayout& {
      const auto found =
          std::find_if(layouts.begin() + first, layouts.end(),
                       [&](const StageLayout& layout) { return layout.stage_ranks == map; });
      return found == layouts.end() ? layouts.emplace_back(StageLayout{v, std::move(map), {}})
                                    : *found;
    };
    for (const std::string& name : SchedulesFor(job, sizes)) {
      schedule::CheckSizes(name, sizes);
      add(schedule::StageMap(name, extent.ranks, v)).schedules.push_back(name);
    }
    if (job.schedule.name == "auto" && v > 1) add(VMap(extent.ranks, v));
  }
  return layouts;
}

/// The search that PlanJob() describes, a sequence of heuristics. Choose() evaluates every layout
/// of stages with every schedule by simulation, then improves the best plan in turn: cuts that
/// balance ranks, moves of single bounds, a searched program, and last the plans that ran before.
/// Each candidate replaces the best only if it is better by a minimal share. The effort is counted
/// in actions (effort_, searched_left_) and not in time, so the result does not depend on the
/// machine.
class Chooser {
 public:
  Chooser(const Job& job, const UncutPlan& uncut_plan, const Extent& extent, Script* script)
      : job_(job), uncut_plan_(uncut_plan), extent_(extent), script_(script) {}

  Plan Choose() {
    const std::vector<StageLayout> layouts = LayoutsOf(job_, extent_, has_seconds(), script_);
    TryAll(layouts, job_.partition);
    by_time_ = trouble_;
    // Memory or split layers may rule out the fastest cuts; then other methods are tried.
    for (const char* method : {"memory", "parameters"}) {
      if (!best_ && costs() && IsCutFreely(job_)) TryAll(layouts, {method, {}, {}});
    }
    if (best_ && may_cut()) TryCutsByRank(layouts);
    std::vector<Plan> searched = best_ ? std::vector<Plan>{best_->plan} : cut_;
    if (best_ && may_cut()) MoveCuts();
    if (best_ && best_->plan.bounds != searched[0].bounds) searched.push_back(best_->plan);
    if (job_.schedule.name == "auto") SearchPrograms(std::move(searched));
    if (best_ && may_cut()) StayWithWhatRan(layouts);
    if (best_) {
      const bool is_noted = IsCutFreely(job_) || job_.schedule.name == "auto";
      if (is_noted) best_->plan.notices.push_back(Note());
      return std::move(best_->plan);
    }
    const bool is_told = job_.schedule.name != "auto" || trouble_.empty();
    if (cut_.empty() || !is_told) throw ConfigError(trouble_);
    return std::move(cut_.front());  // CheckMemory() refuses this plan
  }

 private:
  struct Candidate {
    Plan plan;
    double seconds = 0;
    double price = 0;  ///< by PriceOf()
  };

  /// Runs `body` and ignores a ConfigError, because that way is impossible; the first message is
  /// kept.
  template <class F>
  void Attempt(const F& body) {
    try {
      body();
    } catch (const ConfigError& error) {
      if (trouble_.empty()) trouble_ = error.what();
    }
  }

  /// True if cuts other than those of a method may be tried.
  bool may_cut() const {
    return IsCutFreely(job_) && has_seconds() &&
           job_.recompute.method != RecomputeSpec::Method::kAuto;
  }
  bool has_seconds() const { return costs() && costs()->has_seconds(); }
  const ModelCosts* costs() const { return uncut_plan_.plan().costs.get(); }
  int64_t Actions(const Plan& plan) const {
    return int64_t{3} * static_cast<int64_t>(plan.stages.size()) * extent_.micro_batches;
  }

  void TryAll(const std::vector<StageLayout>& layouts, const PartitionSpec& partition) {
    for (const StageLayout& layout : layouts) {
      Attempt([&] { TryNamed(layout, partition); });
    }
    if (best_) by_ = has_seconds() ? partition.method : "parameters";
  }

  void TryNamed(const StageLayout& layout, const PartitionSpec& partition) {
    Job job = job_;
    job.partition = partition;
    job.stages_per_rank = layout.stages_per_rank;
    Plan plan = uncut_plan_.Cut(job, layout.stage_ranks, PlanSettings(job, extent_, script_));
    FitRecomputation(job, script_, plan);
    for (const std::string& name : layout.schedules) {
      plan.schedule = name;
      Attempt([&] { Try(plan, kLeastSaving); });
    }
    cut_.push_back(std::move(plan));
  }

  /// Makes the plan the best one if it is better by the share `worth`.
  bool Try(const Plan& plan, double worth) { return Keep(Evaluated(plan), worth); }

  bool Keep(std::optional<Candidate> candidate, double worth) {
    if (!candidate || (best_ && candidate->price >= (1 - worth) * best_->price)) return false;
    best_ = std::move(candidate);
    return true;
  }

  /// Evaluates a plan by prediction; nothing if it takes too much memory. The total effort is
  /// limited: once it is used up, nothing more is evaluated and the best plan so far is used.
  std::optional<Candidate> Evaluated(const Plan& plan) {
    if (!effort_.Spend(Actions(plan)) && best_) return std::nullopt;
    Program program = TrainingProgram(job_, plan, extent_.micro_batches, script_);
    if (!has_seconds()) {  // memory in activations, and seconds in passes of a stage
      const schedule::Simulation simulation = schedule::Simulate(program);
      return Weighed(plan, simulation.makespan / plan.stages_per_rank(),
                     std::ranges::max(simulation.peak_activations));
    }
    const StepEvaluation step = Evaluate(PlacedHere(job_, plan, *costs()), std::move(program));
    return Weighed(plan, step.step, MemoryOf(step));
  }

  /// The memory that is compared with the limit: that of the fullest rank, where limits differ of
  /// the one that is farthest above its own.
  int64_t MemoryOf(const StepEvaluation& step) const {
    const Plan& plan = uncut_plan_.plan();
    if (plan.memories.empty()) return step.memory;
    int64_t most = 0;
    for (const RankForecast& rank : step.ranks) {
      most = std::max(most, rank.memory.total() + plan.memory - plan.MemoryOf(rank.memory.rank));
    }
    return most;
  }

  /// The plan with its price, unless it takes too much memory.
  std::optional<Candidate> Weighed(const Plan& plan, double seconds, int64_t memory) {
    const std::optional<double> price = PriceOf(plan.stage_ranks(), plan.schedule, seconds, memory);
    return price ? std::optional(Candidate{plan, seconds, *price}) : std::nullopt;
  }

  /// The price to minimise: with a memory limit the time alone, otherwise memory counts too.
  /// Nothing if the memory exceeds the limit; without one it is that of the first plan and a little
  /// more.
  std::optional<double> PriceOf(const std::vector<int>& stage_ranks, const std::string& schedule,
                                double seconds, int64_t memory) {
    if (memory_ == 0) {
      const auto more = static_cast<int64_t>(kMoreMemory * static_cast<double>(memory));
      memory_ = limit() > 0 ? limit() : more;
    }
    if (memory > memory_) return std::nullopt;
    const double price = schedule::Price(seconds, static_cast<double>(memory), MemoryWeight());
    double& least = prices_.try_emplace({stage_ranks, schedule}, price).first->second;
    least = std::min(least, price);
    return price;
  }
  double MemoryWeight() const { return limit() > 0 || !has_seconds() ? 0 : kMemoryWeight; }
  int64_t limit() const { return uncut_plan_.plan().memory; }

  /// Tries cuts that balance ranks with several stages, even where single stages cannot be
  /// balanced.
  void TryCutsByRank(const std::vector<StageLayout>& layouts) {
    for (const StageLayout& layout : layouts) {
      if (layout.stages_per_rank > 1) Keep(BestByRank(layout), kLeastSaving);
    }
  }

  std::optional<Candidate> BestByRank(const StageLayout& layout) {
    const RankCutOptions options = PricerOptions(layout.stage_ranks);
    std::optional<Candidate> best;
    for (const RankCut& cut : CutsByRank(*costs(), options)) {
      // The cut's price is a lower bound and they ascend, so no later cut can be better.
      if (cut.price >= (best ? best : best_)->price) break;
      for (const std::string& schedule : WithSearch(layout.schedules)) {
        Attempt([&] {
          const Plan plan = CutAt(cut.bounds, layout.stage_ranks, schedule);
          if (!MaySearch(plan)) return;
          std::optional<Candidate> candidate = Evaluated(plan);
          if (candidate && (!best || candidate->price < best->price)) best = std::move(candidate);
        });
      }
    }
    return best;
  }

  RankCutOptions PricerOptions(const std::vector<int>& stage_ranks) const {
    const int replicas = uncut_plan_.plan().topology.Size(kDataAxis);
    return {.stage_ranks = stage_ranks,
            .slowness = uncut_plan_.plan().slowness,
            .micro_batches = extent_.micro_batches,
            .owners = job_.zero > 0 ? static_cast<double>(replicas) : 1,
            .memory_weight = MemoryWeight(),
            .most = kMostRankCuts};
  }

  std::vector<std::string> WithSearch(std::vector<std::string> schedules) const {
    if (job_.schedule.name == "auto") schedules.push_back("auto");
    return schedules;
  }

  /// True if the effort limit allows the search that the plan's schedule needs, if it is "auto";
  /// charges it.
  bool MaySearch(const Plan& plan) {
    if (plan.schedule != "auto") return true;
    searched_left_ -= Actions(plan);
    return searched_left_ >= 0;
  }

  Plan CutAt(std::vector<int> bounds, const std::vector<int>& stage_ranks,
             const std::string& schedule) const {
    Job job = job_;
    job.partition = {"cuts", std::move(bounds), {}};
    Plan plan = uncut_plan_.Cut(job, stage_ranks, {});
    plan.schedule = schedule;
    if (schedule == "auto") plan.program_memory = memory_;
    return plan;
  }

  /// Searches a program for the costs of the best plan, before and after its bounds were moved: the
  /// cuts that are best for a named schedule need not be best for a searched one. If no named
  /// schedule fits into the memory, a searched one may.
  void SearchPrograms(std::vector<Plan> plans) {
    if (best_ && Actions(best_->plan) > kMostSearched) return;
    const bool had_none = !best_;
    for (Plan plan : plans) {
      if (had_none && best_) return;
      plan.schedule = "auto";
      plan.program_memory = memory_;
      Attempt([&] { Try(plan, kLeastSaving); });
    }
  }

  /// Of the plans that have run here the best is kept, unless the new best is predicted to be
  /// better by kNews. The best prediction among many candidates is often simply the most optimistic
  /// one. And so a job gets the same plan in every run, although measured seconds vary a little.
  void StayWithWhatRan(const std::vector<StageLayout>& layouts) {
    std::optional<Candidate> known;
    searched_left_ = kMostSearchedInAll;
    for (const RanPlan& ran : costs()->ran) {
      const auto has_it = [&](const StageLayout& layout) {
        return layout.stage_ranks == ran.stage_ranks &&
               std::ranges::count(WithSearch(layout.schedules), ran.schedule) > 0;
      };
      if (std::ranges::none_of(layouts, has_it)) continue;
      Attempt([&] {
        const Plan plan = CutAt(ran.bounds, ran.stage_ranks, ran.schedule);
        if (!MaySearch(plan)) return;
        std::optional<Candidate> candidate = Evaluated(plan);
        if (candidate && (!known || candidate->price < known->price)) known = std::move(candidate);
      });
    }
    if (known && (1 - kNews) * known->price <= best_->price) best_ = std::move(known);
  }

  /// The cuts with the fastest slowest stage do not always give the shortest step. So bounds are
  /// moved while that helps. Each move is tried with every schedule that is nearly as good, because
  /// a schedule with a longer warm-up prefers other cuts.
  void MoveCuts() {
    const std::vector<int> stage_ranks = best_->plan.stage_ranks();
    const RankCutOptions options = PricerOptions(stage_ranks);
    CutPricer pricer(*costs(), options);
    CutEvaluator evaluator(job_, best_->plan, script_);
    const auto attempt = [&](const std::vector<int>& bounds) {
      const std::vector<std::string> schedules = NearlyAsGood();
      const bool splits = std::ranges::any_of(schedules, [&](const std::string& name) {
        return IsUsers(job_) || name == "auto" || search::SplitsBackward(name);
      });
      if (pricer.PriceOf(bounds, splits) >= (1 - kLeastMove) * best_->price) return false;
      bool is_taken = false;
      for (const std::string& schedule : schedules) {
        Attempt([&] { is_taken |= TryCut(bounds, schedule, evaluator); });
      }
      return is_taken;
    };
    ClimbRules rules = {attempt};
    if (best_->plan.transport != "threads") {  // else no message is sent
      rules.crossing = [&](int place) { return evaluator.crossing(place); };
    }
    if (TriesAllCuts()) {
      partition::ForEachCut(static_cast<int>(job_.layers.size()),
                            static_cast<int>(stage_ranks.size()), attempt);
    } else {
      Climb(best_->plan.bounds, rules, effort_);
    }
  }

  /// True if there are few cuts and ranks differ in speed: then the best cut is often not among the
  /// neighbours of another good one.
  bool TriesAllCuts() const {
    constexpr double kAllCuts = 500;
    return !best_->plan.slowness.empty() &&
           partition::CountCuts(static_cast<int64_t>(job_.layers.size()),
                                static_cast<int64_t>(best_->plan.stages.size()),
                                2 * kAllCuts) <= kAllCuts;
  }

  /// Evaluates other cuts of the best plan's stages, and takes them if they are better and
  /// possible.
  bool TryCut(const std::vector<int>& bounds, const std::string& schedule,
              CutEvaluator& evaluator) {
    const std::vector<int> stage_ranks = best_->plan.stage_ranks();
    if (schedule == "auto") {
      const Plan plan = CutAt(bounds, stage_ranks, schedule);
      return MaySearch(plan) && Try(plan, kLeastMove);
    }
    if (!effort_.Spend(Actions(best_->plan))) return false;
    const StepEvaluation step = evaluator.Of(bounds, stage_ranks, schedule);
    const std::optional<double> price = PriceOf(stage_ranks, schedule, step.step, MemoryOf(step));
    if (!price || *price >= (1 - kLeastMove) * best_->price) return false;
    best_ = Candidate{CutAt(bounds, stage_ranks, schedule), step.step, *price};
    return true;
  }

  /// The schedules for the best plan's stages: its own first, so that it stays if equal, then the
  /// simplest.
  std::vector<std::string> NearlyAsGood() const {
    const std::vector<int> stage_ranks = best_->plan.stage_ranks();
    std::vector<std::string> names;
    for (const auto& [layout, price] : prices_) {
      if (layout.first == stage_ranks && price <= (1 + kNearly) * best_->price) {
        names.push_back(layout.second);
      }
    }
    std::ranges::sort(names, {}, [&](const std::string& name) {
      return name == best_->plan.schedule ? -1 : schedule::TurnOf(name);
    });
    return names;
  }

  // ---- The notice

  /// The seconds of the job's step with another choice; 0 if that is impossible.
  double SecondsOf(const Job& job, const std::string& schedule,
                   const std::vector<int>& stage_ranks) const {
    try {
      Plan plan = uncut_plan_.Cut(job, stage_ranks, {});
      plan.schedule = schedule;
      return Evaluate(PlacedHere(job, plan, *costs()),
                      TrainingProgram(job, plan, extent_.micro_batches, script_))
          .step;
    } catch (const ConfigError&) {
      return 0;
    }
  }

  /// The saving in percent against `of`; 0 if one of the two is not known.
  static long Saved(double seconds, double of) {
    return seconds > 0 && of > 0 ? std::lround(100 * (1 - seconds / of)) : 0;
  }

  /// The notice: what was chosen and what it gains.
  std::string Note() const {
    const std::string chosen = ChosenText();
    if (!has_seconds())
      return chosen + ": nothing is predicted, for the layers' costs are not known";
    std::string text = chosen + WorthText() +
                       Str(" (predicted by ", costs()->SourceText(),
                           best_->plan.links ? " and measured links" : "", ")");
    if (IsCutFreely(job_) && by_ != "auto") {
      text += Str("; cuts by time would not do: ",
                  by_time_.empty() ? "they need more memory" : by_time_);
    }
    return text;
  }

  std::string ChosenText() const {
    const Plan& plan = best_->plan;
    constexpr size_t kShown = 9;
    std::string text = plan.bounds.size() > kShown ? "cuts" : "cuts " + CutsText(plan);
    if (IsCutFreely(job_)) text += " by " + (by_ == "auto" ? "time" : by_);
    text += Str(", ", plan.schedule == "auto" ? "a searched schedule" : plan.schedule);
    const int stages = plan.stages_per_rank();
    return stages > 1 ? Str(text, ", ", stages, " stages on each rank") : text;
  }

  std::string WorthText() const {
    if (IsUsers(job_)) return "";
    const Job simplest = Simplest(job_);
    const double seconds = SecondsOf(
        simplest, simplest.schedule.name,
        schedule::StageMap(simplest.schedule.name, extent_.ranks, simplest.stages_per_rank));
    const long share = Saved(best_->seconds, seconds);
    if (share <= 0) return "";
    return Str(": ", share, "% less than ", IsCutFreely(job_) ? "cuts by parameters with " : "",
               simplest.schedule.name);
  }

  const Job& job_;
  const UncutPlan& uncut_plan_;
  const Extent extent_;
  Script* const script_;
  Effort effort_ = Effort(kMostTried);
  int64_t searched_left_ = kMostSearchedInAll;
  int64_t memory_ = 0;     ///< limit in bytes or, without seconds, activations; 0 = not set yet
  std::vector<Plan> cut_;  ///< the plans of all layouts
  std::optional<Candidate> best_;
  /// The least price of each schedule for each placement of stages.
  std::map<std::pair<std::vector<int>, std::string>, double> prices_;
  std::string by_;       ///< the partition method of the best plan
  std::string trouble_;  ///< the first reason why a plan was impossible
  std::string by_time_;  ///< why cuts by time are impossible; "" if they only need more memory
};

}  // namespace

Job Narrowed(Job job, const Extent& extent) {
  if (!IsUsers(job)) {
    // Fits() throws for an unknown name.
    if (job.schedule.name != "auto") schedule::Fits(job.schedule.name, {});
    if (extent.ranks == 1 && job.stages_per_rank <= 1) return Simplest(std::move(job));
  }
  const std::vector<int> counts = StageCounts(job, extent);
  if (counts.size() == 1) job.stages_per_rank = counts[0];
  return job;
}

bool IsChosen(const Job& job) {
  return IsCutFreely(job) || job.schedule.name == "auto" || job.stages_per_rank == 0;
}

Plan ChoosePlan(const Job& job, const UncutPlan& uncut_plan, const Extent& extent, Script* script) {
  return Chooser(job, uncut_plan, extent, script).Choose();
}

}  // namespace strata
