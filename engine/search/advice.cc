#include "engine/search/advice.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"
#include "engine/plan/cut/partition.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/generators/generators.h"

namespace strata {
namespace {

/// A remedy must save at least this share of the time per sample.
constexpr double kLeastGain = 0.01;
/// A remedy that needs less than this times as much memory counts as one without more memory.
constexpr double kSameMemory = 1.02;
constexpr double kLeastShare = 0.001;

// ---- What limits

double StepWith(const StepForecast& forecast, const schedule::Costs& costs) {
  return schedule::Simulate(forecast.program, costs).makespan;
}

/// Sets every entry to the mean.
void Level(std::vector<double>& seconds) {
  if (seconds.empty()) return;
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  std::ranges::fill(seconds, sum / static_cast<double>(seconds.size()));
}

/// Removes one limit after the other from the simulated costs, and records how much shorter the
/// step becomes each time. What remains is computing.
class Limits {
 public:
  explicit Limits(const StepForecast& forecast)
      : forecast_(forecast), costs_(forecast.action_costs), step_(forecast.step()) {}

  std::vector<Limit> Find() {
    Take("messages between stages", [this] {
      costs_.comm = 0;
      Clear(costs_.transfer);
      Clear(costs_.latency);
    });
    const int slowest = forecast_.slowest_stage();
    Take(Str("waiting for stage ", slowest, ", the slowest"), [this] {
      for (auto* seconds : {&costs_.forward, &costs_.input_grad, &costs_.weight_grad,
                            &costs_.backward, &costs_.recompute, &costs_.overlap}) {
        Level(*seconds);
      }
    });
    const auto& busy = schedule::Simulate(forecast_.program, costs_).busy;
    const double work =
        std::accumulate(busy.begin(), busy.end(), 0.0) / static_cast<double>(busy.size());
    Note("filling and draining the pipeline", step_ - work);
    std::ranges::stable_sort(limits_, std::greater(), &Limit::share);
    return limits_;
  }

 private:
  static void Clear(std::vector<double>& seconds) { std::ranges::fill(seconds, 0.0); }

  void Take(const std::string& what, const std::function<void()>& take) {
    take();
    const double without = StepWith(forecast_, costs_);
    Note(what, step_ - without);
    step_ = without;
  }

  void Note(const std::string& what, double seconds) {
    const double share = seconds / forecast_.step();
    if (share >= kLeastShare) limits_.push_back({what, share});
  }

  const StepForecast& forecast_;
  schedule::Costs costs_;
  double step_;  // the step with the limits that remain
  std::vector<Limit> limits_;
};

// ---- What helps

/// Tries remedies of every kind and keeps the best of each.
class Remedies {
 public:
  Remedies(const Alternative& now, const PlanOptions& options, Script* script)
      : now_(now), options_(options), script_(script) {}

  std::vector<Remedy> Find() {
    Cuts();
    Schedules();
    StagesPerRank();
    MicroBatches();
    Recomputation();
    Ranks();
    std::ranges::stable_sort(found_, [this](const Remedy& a, const Remedy& b) {
      const auto price = [this](const Remedy& r) { return Price(r); };
      return price(a) != price(b) ? price(a) < price(b) : a.gain > b.gain;
    });
    if (found_.size() > 3) found_.resize(3);
    return found_;
  }

 private:
  const Job& job() const { return now_.job; }
  int stages() const { return static_cast<int>(now_.plan.stages.size()); }

  /// What the remedy costs. 0: no more than now; 1: more memory; 2: more ranks.
  int Price(const Remedy& remedy) const {
    if (remedy.ranks > now_.ranks()) return 2;
    const auto memory = static_cast<double>(now_.forecast.peak_memory());
    return static_cast<double>(remedy.memory) > kSameMemory * memory ? 1 : 0;
  }

  std::optional<Remedy> Try(Job job, const std::string& what, const std::string& keys) const {
    const Alternative tried = TryJob(std::move(job), options_, now_.forecast.rates, script_);
    if (!tried.trouble.empty()) return std::nullopt;
    const double gain = 1 - tried.SecondsPerSample() / now_.SecondsPerSample();
    // If no shape is known, nothing takes time, and the gain is not a number.
    if (!(gain >= kLeastGain)) return std::nullopt;
    return Remedy{what,
                  keys,
                  tried.forecast.step(),
                  gain,
                  tried.forecast.peak_memory(),
                  tried.ranks(),
                  tried.forecast.simulation.bubble};
  }

  /// Keeps the better of two remedies of one kind: the cheaper one by Price(), then the one that
  /// saves more.
  void Keep(std::optional<Remedy>& best, std::optional<Remedy> tried) const {
    if (!tried) return;
    const bool better = !best || Price(*tried) < Price(*best) ||
                        (Price(*tried) == Price(*best) && tried->gain > best->gain);
    if (better) best = std::move(tried);
  }
  void Take(std::optional<Remedy> best) {
    if (best) found_.push_back(std::move(*best));
  }

  std::string BoundsText(const std::vector<int>& bounds) const {
    return Str("partition={", CutNamesOf(now_.plan).Text(bounds, ", "), "}");
  }

  /// The bounds that balance the seconds of `stages` stages.
  std::vector<int> BalancedBounds(int stages) const {
    std::vector<double> seconds;
    for (const LayerCost& layer : now_.forecast.costs.layers) {
      seconds.push_back(layer.forward.seconds + layer.input_grad.seconds +
                        layer.weight_grad.seconds);
    }
    return partition::Balanced(std::span<const double>(seconds), stages);
  }

  void Cuts() {
    const CutNames names = CutNamesOf(now_.plan);
    std::optional<Remedy> best;
    if (stages() > 1) {
      const std::vector<int> balanced = BalancedBounds(stages());
      if (balanced != now_.plan.bounds) {
        Keep(best, Try(WithCuts(job(), balanced), "cuts that balance the stages' time",
                       BoundsText(balanced)));
      }
    }
    for (size_t s = 1; s + 1 < now_.plan.bounds.size(); ++s) {
      for (const int by : {-1, 1}) {
        std::vector<int> bounds = now_.plan.bounds;
        bounds[s] += by;
        if (bounds[s] <= bounds[s - 1] || bounds[s] >= bounds[s + 1]) continue;
        const int layer = by > 0 ? bounds[s] - 1 : bounds[s];
        const auto to = by > 0 ? s - 1 : s;
        Keep(best, Try(WithCuts(job(), bounds),
                       Str("layer ", names.Range(layer, layer + 1), " on stage ", to),
                       BoundsText(bounds)));
      }
    }
    Take(std::move(best));
  }

  void Schedules() {
    std::optional<Remedy> best;
    for (const std::string& name : schedule::TriedSchedules()) {
      if (name == now_.plan.schedule) continue;
      Job other = job();
      other.schedule = {name, "", {}};
      Keep(best, Try(std::move(other), "another schedule", Str("schedule=\"", name, "\"")));
    }
    Take(std::move(best));
  }

  void StagesPerRank() {
    const int wanted = 2 * now_.plan.pipe();
    const bool can = now_.plan.pipe() > 1 && now_.plan.stages_per_rank() == 1 &&
                     wanted <= static_cast<int>(job().layers.size());
    if (!can) return;
    std::optional<Remedy> best;
    const std::vector<int> bounds = BalancedBounds(wanted);
    const int micro_batches = static_cast<int>(now_.plan.batch.micro_batches);
    for (const std::string& name : schedule::TriedSchedules()) {
      if (!schedule::Fits(name, {now_.plan.pipe(), 2, micro_batches})) continue;
      Job other = WithCuts(job(), bounds);
      other.stages_per_rank = 2;
      other.schedule = {name, "", {}};
      Keep(best, Try(std::move(other), "two stages on each rank",
                     Str("stages_per_rank=2, schedule=\"", name, "\", ", BoundsText(bounds))));
    }
    Take(std::move(best));
  }

  /// Tries twice and half as many micro-batches for the same batch.
  void MicroBatches() {
    std::optional<Remedy> best;
    const Batch& batch = now_.plan.batch;
    for (const int64_t count : {batch.micro_batches * 2, batch.micro_batches / 2}) {
      if (count < 1 || batch.size % count != 0 || job().train_data.kind == "function") continue;
      Job other = job();
      other.batch = {batch.size, count, batch.size / count};
      Keep(best, Try(std::move(other),
                     count > batch.micro_batches ? "more, smaller micro-batches"
                                                 : "fewer, larger micro-batches",
                     Str("micro_batches=", count, ", micro_batch_size=", batch.size / count)));
    }
    Take(std::move(best));
  }

  void Recomputation() {
    if (job().recompute.method == RecomputeSpec::Method::kNone) return;
    Job other = job();
    other.recompute = {};
    Take(Try(std::move(other), "activations are kept", "recompute=false"));
  }

  void Ranks() {
    std::optional<Remedy> best;
    Job wider = job();
    wider.parallel.data = 2 * now_.plan.topology.Size(kDataAxis);
    Keep(best, Try(std::move(wider), "twice the replicas, and samples in a step",
                   Str("data=", 2 * now_.plan.topology.Size(kDataAxis))));
    const int pipe = 2 * now_.plan.pipe();
    if (pipe * now_.plan.stages_per_rank() <= static_cast<int>(job().layers.size())) {
      const std::vector<int> bounds = BalancedBounds(pipe * now_.plan.stages_per_rank());
      Job longer = WithCuts(job(), bounds);
      longer.parallel.pipe = pipe;
      Keep(best, Try(std::move(longer), "twice the stages",
                     Str("pipe=", pipe, ", ", BoundsText(bounds))));
    }
    Take(std::move(best));
  }

  const Alternative& now_;
  const PlanOptions& options_;
  Script* script_;
  std::vector<Remedy> found_;
};

std::string RemedyLine(const Remedy& remedy, const Alternative& now) {
  std::string text =
      Str("  ", remedy.what, ": ", remedy.keys, "\n    step ", FormatSeconds(now.forecast.step()),
          " -> ", FormatSeconds(remedy.step), ", ", FormatShare(remedy.gain),
          " less per sample; bubble ", FormatShare(remedy.bubble), "; memory of the fullest rank ",
          FormatBytes(static_cast<double>(now.forecast.peak_memory())), " -> ",
          FormatBytes(static_cast<double>(remedy.memory)));
  if (remedy.ranks != now.ranks()) text += Str("; ", now.ranks(), " -> ", remedy.ranks, " ranks");
  return text + "\n";
}

}  // namespace

Advice Advise(Alternative now, const PlanOptions& options, Script* script) {
  Advice advice;
  advice.limits = Limits(now.forecast).Find();
  advice.work = 1;
  for (const Limit& limit : advice.limits) advice.work -= limit.share;
  advice.remedies = Remedies(now, options, script).Find();
  advice.now = std::move(now);
  return advice;
}

std::string AdviceText(const Advice& advice) {
  const StepForecast& forecast = advice.now.forecast;
  std::string text =
      Str("step ", FormatSeconds(forecast.step()), " on ", forecast.rates.name, ", bubble ",
          FormatShare(forecast.simulation.bubble), "\n", FormatShare(advice.work), " computing");
  for (const Limit& limit : advice.limits) {
    text += Str(", ", FormatShare(limit.share), " ", limit.what);
  }
  text += "\n";
  if (advice.remedies.empty()) {
    return text + "nothing that was tried saves 1 % of the time per sample\n";
  }
  text += "what would be faster, the cheapest first:\n";
  for (const Remedy& remedy : advice.remedies) text += RemedyLine(remedy, advice.now);
  return text;
}

Value AdviceValue(const Advice& advice) {
  Value::List limits, remedies;
  for (const Limit& limit : advice.limits) {
    limits.push_back(Value::MakeMap({{"what", limit.what}, {"share", limit.share}}));
  }
  for (const Remedy& remedy : advice.remedies) {
    remedies.push_back(Value::MakeMap({{"what", remedy.what},
                                       {"keys", remedy.keys},
                                       {"step", remedy.step},
                                       {"gain", remedy.gain},
                                       {"memory", remedy.memory},
                                       {"ranks", remedy.ranks},
                                       {"bubble", remedy.bubble}}));
  }
  return Value::MakeMap({{"work", advice.work}, {"limits", limits}, {"remedies", remedies}});
}

}  // namespace strata
