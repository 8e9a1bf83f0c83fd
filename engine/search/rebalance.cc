// Candidates for new cuts are compared by evaluating the program that would run, with the learnt
// costs of layers and slowness of ranks. From the current cuts, or from those with the fastest
// slowest stage, bounds are moved while that helps (climb.h). Before that, cheap bounds decide
// whether a search can pay: LeastSaving() is what a move costs, MostSaving() what it can gain at
// most. The number of simulated actions of a decision is limited by kMostActions.
#include "engine/search/rebalance.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <ranges>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/forecast/evaluate.h"
#include "engine/forecast/planned_program.h"
#include "engine/forecast/run_profile.h"
#include "engine/plan/cut/best_cut.h"
#include "engine/plan/cut/cut.h"
#include "engine/plan/plan_costs.h"
#include "engine/plan/plan_text.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

/// The limit of simulated actions for one decision, and the factor for a program that has to be
/// searched.
constexpr int64_t kMostActions = 400'000, kSearched = 20;
/// The most steps of a search for the cuts with the fastest slowest stage.
constexpr double kMostCuts = 2e7;
/// The estimated time of the first move: kLeastMoving plus its bytes at the rate kMovedBytes per
/// second. Stages are built anew, and parameters, moments and statistics are copied, most of them
/// within a rank.
constexpr double kLeastMoving = 0.1, kMovedBytes = 400e6;
/// The most windows that pass without a search after searches that found nothing.
constexpr int kMostSkips = 64;
/// The memory limit of a rank, as a factor of the largest rank's memory at the start.
constexpr double kMoreMemory = 1.25;

double Sum(const StageSeconds& stage) { return stage.forward + stage.backward; }

/// Multiplies the seconds of each stage's layers by the stage's factor, and those of the loss by
/// the last stage's.
ModelCosts Scaled(ModelCosts costs, const std::vector<int>& cuts,
                  const std::vector<StageSeconds>& by) {
  for (size_t s = 0; s < by.size(); ++s) {
    for (int i = cuts[s]; i < cuts[s + 1]; ++i) Scale(by[s], costs.layers[i]);
  }
  Scale(by.back(), costs.loss);
  return costs;
}

std::vector<double> RankSeconds(const std::vector<StageSeconds>& stages, const Plan& plan) {
  std::vector<double> seconds(plan.pipe());
  for (const StagePlan& stage : plan.stages) seconds[stage.rank] += Sum(stages[stage.stage]);
  return seconds;
}

std::string Times(double factor) { return Str(std::round(10 * factor) / 10, " times"); }

}  // namespace

std::string ToText(const BetterCuts& better) {
  const auto seconds = [](const LayerCost& cost) {
    return Value::List{cost.forward.seconds, cost.input_grad.seconds, cost.weight_grad.seconds};
  };
  Value::List layers;
  for (const LayerCost& layer : better.costs->layers) layers.push_back(seconds(layer));
  layers.push_back(seconds(better.costs->loss));
  return Value::MakeMap({{"cuts", Value::IntList({better.cuts.begin(), better.cuts.end()})},
                         {"seconds", std::move(layers)},
                         {"saving", better.saving},
                         {"why", better.why}})
      .ToJson();
}

BetterCuts ParseBetterCuts(const std::string& text, const ModelCosts& known) {
  const Value value = Value::FromJson(text);
  ModelCosts costs = known;
  costs.seconds_from = SecondsFrom::kMeasured;
  const Value::List& seconds = value["seconds"].as_list();
  const auto set = [&](LayerCost& cost, size_t i) {
    const Value::List& passes = seconds.at(i).as_list();
    cost.forward.seconds = passes[0].as_double();
    cost.input_grad.seconds = passes[1].as_double();
    cost.weight_grad.seconds = passes[2].as_double();
  };
  for (size_t i = 0; i < costs.layers.size(); ++i) set(costs.layers[i], i);
  set(costs.loss, costs.layers.size());
  BetterCuts better;
  for (const int64_t cut : value["cuts"].as_ints()) better.cuts.push_back(static_cast<int>(cut));
  better.costs = std::make_shared<const ModelCosts>(std::move(costs));
  better.saving = value["saving"].as_double();
  better.why = value["why"].as_string();
  return better;
}

std::string Rebalancer::WhyNot(const Job& job, const Plan& plan, ProvedPrograms& programs,
                               Script* script) {
  const auto is_own = [](const LayerSpec& layer) {
    return layer.scripted && layer.type != "function";
  };
  if (!job.rebalance) return "rebalance = false";
  if (partition::MethodGoesBy(job.partition) != partition::GoesBy::kGuess) {
    return "partition says where the layers are";
  }
  if (plan.pipe() == 1) return "there is one rank";
  if (plan.stages.size() == plan.layers.size()) return "every layer is a stage";
  if (plan.device != "cpu") return "the host does not see what stages take on a GPU";
  if (!plan.costs || !plan.costs->is_measured()) return "what layers take here is not known";
  if (plan.memory > 0) return "while layers move a rank takes more memory, which is limited";
  if (std::ranges::any_of(job.layers, is_own)) {
    return "layers of strata.layer may keep things in `self`, which do not move";
  }
  if (plan.schedule != "auto" && !AccumulatesInOrder(programs.Training(job, plan, script))) {
    return "the schedule adds gradients in an order of each stage's own";
  }
  return "";
}

std::vector<int> Rebalancer::CutsBeforeSteps(const Job& job, const Plan& plan, Script* script) {
  Rebalancer search(job, plan, script);
  search.base_ = *plan.costs;
  for (int rank = 0; rank < plan.pipe(); ++rank) {
    search.slowness_.push_back(plan.SlownessOf(rank));
  }
  search.most_memory_ = std::numeric_limits<int64_t>::max();  // Recut() keeps to the job's limit
  return search.Search(search.Now().step).cuts;
}

Rebalancer::Rebalancer(const Job& job, const Plan& plan, Script* script)
    : job_(job), plan_(plan), script_(script) {}

void Rebalancer::Moved(double seconds) {
  program_.reset();
  moved_ += seconds;
  last_move_ = seconds;
  window_.Restart();
  found_ = waits_ = skips_ = 0;
}

std::optional<BetterCuts> Rebalancer::AfterStep(const MeasuredStep& step, int64_t left) {
  elapsed_ += step.seconds;
  const std::optional<MeasuredStep> median = window_.Add(step);
  if (!median) return std::nullopt;
  Learn(median->stages);
  std::optional<BetterCuts> better = Decide(*median, left);
  found_ = better ? found_ + 1 : 0;
  return found_ >= 2 ? better : std::nullopt;
}

/// In the first window learns the seconds of layers; later the slowness of ranks, and after a move
/// again the seconds of layers.
void Rebalancer::Learn(const std::vector<StageSeconds>& stages) {
  if (!base_) {
    base_ = Scaled(*plan_.costs, plan_.bounds, Ratios(stages, *plan_.costs, plan_));
    base_->seconds_from = SecondsFrom::kMeasured;
  } else if (learnt_at_ != plan_.bounds) {
    LearnFromMove(stages);
  }
  learnt_at_ = plan_.bounds;
  const std::vector<double> measured = RankSeconds(stages, plan_);
  const std::vector<double> expected = RankSeconds(ExpectedStages(*base_, plan_), plan_);
  slowness_.clear();
  for (size_t rank = 0; rank < measured.size(); ++rank) {
    slowness_.push_back(plan_.SlownessOf(static_cast<int>(rank)) *
                        Ratio(measured[rank], expected[rank]));
  }
}

/// Learns the seconds of the layers that moved into a stage. The layers that stayed keep their
/// seconds, and the new ones get the rest of the measured time. If nothing remains, or no layer
/// came, all layers of the stage are scaled. The slowness of ranks is assumed unchanged; otherwise
/// a wrong guess about layers would look like a rank that has changed speed, and would move them
/// back. The measured forward includes recomputation, which is assumed to keep its expected share.
void Rebalancer::LearnFromMove(const std::vector<StageSeconds>& stages) {
  const auto learn = [&](int s, double measured, const auto& seconds_of, const auto& scale) {
    const int begin = plan_.bounds[s], end = plan_.bounds[s + 1];
    const auto stayed = [&](int i) { return learnt_at_[s] <= i && i < learnt_at_[s + 1]; };
    double old = 0, come = 0;
    for (int i = begin; i < end; ++i) (stayed(i) ? old : come) += seconds_of(base_->layers[i]);
    const bool has_loss = end == static_cast<int>(base_->layers.size());
    if (has_loss) old += seconds_of(base_->loss);
    const bool is_theirs = come > 0 && measured > old;
    const double by = is_theirs ? (measured - old) / come : Ratio(measured, old + come);
    for (int i = begin; i < end; ++i) {
      if (!is_theirs || !stayed(i)) scale(base_->layers[i], by);
    }
    if (has_loss && !is_theirs) scale(base_->loss, by);
  };
  const std::vector<StageCost> known = StageCosts(*base_, plan_);
  for (const StagePlan& stage : plan_.stages) {
    const StageSeconds& measured = stages[stage.stage];
    const double slowness = slowness_[stage.rank];
    const StageCost& cost = known[stage.stage];
    const double forward = cost.forward.seconds, again = cost.recompute.seconds;
    learn(
        stage.stage, measured.forward / slowness / (forward > 0 ? 1 + again / forward : 1),
        [](const LayerCost& layer) { return layer.forward.seconds; },
        [](LayerCost& layer, double by) { layer.forward.seconds *= by; });
    learn(
        stage.stage, measured.backward / slowness,
        [](const LayerCost& layer) { return layer.input_grad.seconds + layer.weight_grad.seconds; },
        [](LayerCost& layer, double by) {
          layer.input_grad.seconds *= by;
          layer.weight_grad.seconds *= by;
        });
  }
}

/// The costs of all layers on the ranks on which these cuts place them. They include the slowness
/// of the ranks as far as the plan does not have it.
ModelCosts Rebalancer::Costs(const std::vector<int>& cuts) const {
  std::vector<StageSeconds> by;
  for (const StagePlan& stage : plan_.stages) {
    const double more = Change(stage.rank);
    by.push_back({more, more});
  }
  return Scaled(*base_, cuts, by);
}

std::optional<BetterCuts> Rebalancer::Decide(const MeasuredStep& step, int64_t left) {
  const double least = LeastSaving(step.seconds, left), most = MostSaving(step.stages);
  if (most < least) return std::nullopt;
  if (most < in_vain_ + kLeastGain && waits_ > 0) {
    --waits_;
    return std::nullopt;
  }
  const double now = Now().step;
  const Choice best = Search(now);
  const double saving = now > 0 ? 1 - best.seconds / now : 0;
  if (best.cuts == plan_.bounds || saving < least) {
    skips_ = std::clamp(2 * skips_, 1, kMostSkips);
    waits_ = skips_;
    in_vain_ = most;
    return std::nullopt;
  }
  skips_ = 0;
  return BetterCuts{best.cuts, std::make_shared<const ModelCosts>(Costs(best.cuts)), saving,
                    Why(step.stages)};
}

/// Evaluates the current cuts; at the first call also sets the memory limit of ranks.
StepEvaluation Rebalancer::Now() {
  if (!program_) {
    program_.emplace(
        TrainingProgram(job_, plan_, static_cast<int>(plan_.batch.micro_batches), script_));
  }
  StepEvaluation now = program_->Of(PlacedHere(job_, plan_, Costs(plan_.bounds)));
  if (most_memory_ == 0) {
    most_memory_ = static_cast<int64_t>(kMoreMemory * static_cast<double>(now.memory));
  }
  return now;
}

/// The share of a step that must be saved to pay for a move within the remaining steps; above 1 if
/// no saving can.
double Rebalancer::LeastSaving(double step_seconds, int64_t left) const {
  const double rest = step_seconds * static_cast<double>(left), moving = MovingSeconds();
  if (rest <= 0 || moved_ + moving > kMostTime * (elapsed_ + rest)) return 2;
  return kLeastGain + moving / rest;
}

/// The duration of the last move, or an estimate from the bytes of the largest rank.
double Rebalancer::MovingSeconds() const {
  if (last_move_ > 0) return last_move_;
  int64_t most = 0;
  for (const StageCost& stage : StageCosts(*plan_.costs, plan_)) {
    const int64_t bytes = stage.weight_bytes * (1 + plan_.costs->moments) + stage.buffer_bytes +
                          stage.extra_state_bytes;
    most = std::max(most, bytes * plan_.stages_per_rank());
  }
  return kLeastMoving + static_cast<double>(most) / kMovedBytes;
}

/// An upper bound on the time that moving layers can save: it assumes that the work can be divided
/// exactly and that no rank waits.
double Rebalancer::MostSaving(const std::vector<StageSeconds>& stages) const {
  const std::vector<double> busy = RankSeconds(stages, plan_);
  double work = 0, speed = 0;
  for (size_t rank = 0; rank < busy.size(); ++rank) {
    work += busy[rank] / slowness_[rank];
    speed += 1 / slowness_[rank];
  }
  const double slowest = std::ranges::max(busy);
  return slowest > 0 ? 1 - work / speed / slowest : 0;
}

/// Searches from the current cuts, which take `now` seconds, or from those with the fastest slowest
/// stage.
Rebalancer::Choice Rebalancer::Search(double now) {
  constexpr double kLeast = 1e-3;
  Choice best = {plan_.bounds, now};
  Effort effort(kMostActions);
  Plan learnt = plan_;
  learnt.costs = std::make_shared<const ModelCosts>(*base_);
  learnt.slowness = slowness_;
  CutEvaluator evaluator(job_, learnt, script_);
  const auto attempt = [&](const std::vector<int>& cuts) {
    try {
      const std::optional<double> seconds = SecondsOf(cuts, evaluator, effort);
      if (!seconds || *seconds >= (1 - kLeast) * best.seconds) return false;
      Recut(cuts);  // throws if the cuts are impossible
      best = {cuts, *seconds};
      return true;
    } catch (const ConfigError&) {
      return false;
    }
  };
  attempt(FastestCuts());
  Climb(best.cuts, {attempt}, effort);
  return best;
}

std::vector<int> Rebalancer::FastestCuts() const {
  const auto layers = static_cast<int>(base_->layers.size());
  const auto stages = static_cast<int>(plan_.stages.size());
  if (0.5 * stages * layers * layers > kMostCuts) return plan_.bounds;
  std::vector<double> before = {0};
  for (const LayerCost& layer : base_->layers) {
    before.push_back(before.back() + layer.forward.seconds + layer.input_grad.seconds +
                     layer.weight_grad.seconds);
  }
  return partition::BestCut(layers, stages, [&](int stage, int begin, int end) {
    constexpr double kPicoseconds = 1e12;
    return std::llround(kPicoseconds * slowness_[plan_.stages[stage].rank] *
                        (before[end] - before[begin]));
  });
}

Plan Rebalancer::Recut(const std::vector<int>& cuts) const {
  return RecutPlan(job_, plan_, cuts, std::make_shared<const ModelCosts>(Costs(cuts)), script_);
}

/// The seconds of a step with these cuts; none if they take too much memory, or if the effort is
/// used up. Throws ConfigError for impossible cuts.
std::optional<double> Rebalancer::SecondsOf(const std::vector<int>& cuts, CutEvaluator& evaluator,
                                            Effort& effort) const {
  const bool is_searched = plan_.schedule == "auto";
  const auto actions = 3 * static_cast<int64_t>(plan_.stages.size()) * plan_.batch.micro_batches;
  if (!effort.Spend(actions * (is_searched ? kSearched : 1))) return std::nullopt;
  StepEvaluation step;
  if (is_searched) {
    const Plan plan = Recut(cuts);
    step =
        Evaluate(PlacedHere(job_, plan, *plan.costs),
                 TrainingProgram(job_, plan, static_cast<int>(plan.batch.micro_batches), script_));
  } else {
    step = evaluator.Of(cuts, plan_.stage_ranks(), plan_.schedule);
  }
  return step.memory > most_memory_ ? std::nullopt : std::optional(step.step);
}

/// The reason for the move: the rank whose speed has changed most, or else the busiest rank.
std::string Rebalancer::Why(const std::vector<StageSeconds>& stages) const {
  constexpr double kChanged = 1.15;
  const std::string rank = PipeRank(plan_);
  const auto change = [this](int r) { return std::abs(std::log(Change(r))); };
  const auto all = std::views::iota(0, plan_.pipe());
  const int changed = *std::ranges::max_element(all, {}, change);
  if (change(changed) > std::log(kChanged)) {
    const double by = Change(changed);
    const bool is_slower = by > 1;
    return Str(rank, changed, " takes ", Times(is_slower ? by : 1 / by),
               is_slower ? " as long as at first" : " less than at first");
  }
  const std::vector<double> busy = RankSeconds(stages, plan_);
  const auto most = std::ranges::max_element(busy), least = std::ranges::min_element(busy);
  return Str(rank, most - busy.begin(), " was measured to be busy ", Times(Ratio(*most, *least)),
             " as long as ", rank, least - busy.begin());
}

}  // namespace strata
