// A kind of change (Kind) is a list of variants, from the one that costs least to the one that
// saves most memory. WaysToFit() takes of each kind the cheapest variant that fits. A combination
// of kinds has the variants that take one of each; to keep them few, smaller micro-batches take
// part with their last variant only.
#include "engine/search/fit_ways.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"

namespace strata {
namespace {

constexpr size_t kShown = 3;
constexpr double kLeastSaving = 0.01;

/// A changed job, and the flags that change it.
struct Variant {
  std::string flags;
  Job job;
};
/// The variants of a change of `job`, of which the plan needs `now`.
using Kind = std::vector<Variant> (*)(const Job& job, const PlanNeeds& now);

Job Every(Job job, int layers) {
  job.recompute = {.method = RecomputeSpec::Method::kEvery, .every = layers};
  return job;
}

/// The choice by recompute_choice.h keeps to the limit with the least work. Without job.memory it
/// has no limit and recomputes nothing; then each layer runs again.
std::vector<Variant> Recomputing(const Job& job, const PlanNeeds&) {
  Job chosen = job;
  chosen.recompute = {.method = RecomputeSpec::Method::kAuto};
  return {{"--recompute=auto", chosen}, {"--recompute=every:1", Every(job, 1)}};
}

std::vector<Variant> SmallerMicroBatches(const Job& job, const PlanNeeds&) {
  std::vector<Variant> variants;
  if (job.train_data.kind == "function") return {};  // it decides the size
  const Batch batch = ResolveBatch(job.batch);
  for (int64_t parts = 2; batch.micro_batch_size % parts == 0 && parts <= 8; parts *= 2) {
    Job smaller = job;
    smaller.batch = {batch.size, batch.micro_batches * parts, batch.micro_batch_size / parts};
    variants.push_back({Str("--batch.micro_batches=", smaller.batch.micro_batches,
                            " --batch.micro_batch_size=", smaller.batch.micro_batch_size),
                        smaller});
  }
  return variants;
}

std::vector<Variant> MoreStages(const Job& job, const PlanNeeds& now) {
  std::vector<Variant> variants;
  const int pipe = std::max(job.parallel.pipe, 1);
  for (int times = 2; times <= 16 && pipe * times <= now.layers; times *= 2) {
    Job longer = job;
    longer.parallel.pipe = pipe * times;
    variants.push_back({Str("--pipe=", pipe * times), longer});
  }
  return variants;
}

std::vector<Variant> Sharding(const Job& job, const PlanNeeds& now) {
  std::vector<Variant> variants;
  Job sharded = job;
  if (now.data == 1) sharded.parallel.data = 2;
  const char* const data = now.data == 1 ? " --data=2" : "";
  for (sharded.zero = job.zero + 1; sharded.zero <= 2; ++sharded.zero) {
    variants.push_back({Str("--zero=", sharded.zero, data), sharded});
  }
  return variants;
}

constexpr Kind kKinds[] = {Recomputing, SmallerMicroBatches, MoreStages, Sharding};

/// What decides between two ways that fit.
std::tuple<int, double> Price(const FitWay& way) {
  return {way.needs.ranks,
          way.needs.step / static_cast<double>(std::max<int64_t>(way.needs.samples, 1))};
}

class Ways {
 public:
  Ways(const Job& job, const PlanNeeds& now, int64_t limit, const PredictNeeds& predict)
      : job_(job), now_(now), limit_(limit), predict_(predict) {}

  std::vector<FitWay> Find() {
    for (size_t count = 1; count <= std::size(kKinds) && found_.empty(); ++count) {
      is_combined_ = count > 1;
      Combine({{"", job_}}, 0, count);
    }
    std::ranges::stable_sort(found_, {}, Price);
    if (found_.size() > kShown) found_.resize(kShown);
    return found_;
  }

 private:
  /// Adds `count` of the kinds from `first` on to every one of `variants`, and keeps the best of
  /// each combination of kinds.
  void Combine(const std::vector<Variant>& variants, size_t first, size_t count) {
    if (count == 0) return Keep(variants);
    for (size_t kind = first; kind + count <= std::size(kKinds); ++kind) {
      std::vector<Variant> changed;
      for (const Variant& before : variants) {
        std::vector<Variant> own = kKinds[kind](before.job, now_);
        if (is_combined_ && kKinds[kind] == SmallerMicroBatches && own.size() > 1) {
          own.erase(own.begin(), own.end() - 1);
        }
        for (Variant& variant : own) {
          if (!before.flags.empty()) variant.flags = Str(before.flags, " ", variant.flags);
          changed.push_back(std::move(variant));
        }
      }
      if (!changed.empty()) Combine(changed, kind + 1, count - 1);
    }
  }

  void Keep(const std::vector<Variant>& variants) {
    std::optional<FitWay> best;
    for (const Variant& variant : variants) {
      const std::optional<PlanNeeds> needs = predict_(variant.job);
      if (!needs || needs->memory > limit_) continue;
      const FitWay way = {variant.flags, *needs};
      if (!best || Price(way) < Price(*best)) best = way;
    }
    if (best) found_.push_back(std::move(*best));
  }

  const Job& job_;
  const PlanNeeds& now_;
  const int64_t limit_;
  const PredictNeeds& predict_;
  bool is_combined_ = false;
  std::vector<FitWay> found_;
};

}  // namespace

PlanNeeds NeedsOf(const Plan& plan, int64_t memory, double step) {
  const int data = plan.topology.Size(kDataAxis);
  return {.memory = memory,
          .step = step,
          .samples = plan.batch.size * data,
          .ranks = plan.topology.world_size(),
          .data = data,
          .layers = static_cast<int>(plan.layers.size())};
}

std::vector<FitWay> WaysToFit(const Job& job, const PlanNeeds& now, int64_t limit,
                              const PredictNeeds& predict) {
  return Ways(job, now, limit, predict).Find();
}

std::string FitWaysText(const std::vector<FitWay>& ways) {
  if (ways.empty()) {
    return "neither recomputation, smaller micro-batches, more stages nor zero = 2 makes it fit, "
           "nor do all of them together\n";
  }
  TextTable table({"to make it fit, the cheapest first", "memory", "step", "ranks"});
  for (const FitWay& way : ways) {
    table.Add({way.flags, ShowBytes(way.needs.memory), FormatSeconds(way.needs.step),
               Str(way.needs.ranks)});
  }
  return table.Render();
}

Value FitWaysValue(const std::vector<FitWay>& ways) {
  Value::List list;
  for (const FitWay& way : ways) {
    list.push_back(Value::MakeMap({{"flags", way.flags},
                                   {"memory", way.needs.memory},
                                   {"step", way.needs.step},
                                   {"ranks", way.needs.ranks}}));
  }
  return list;
}

std::string RecomputeNote(const Job& job, const PredictNeeds& predict) {
  if (job.recompute.method != RecomputeSpec::Method::kStages) return "";
  Job keeping = job;
  keeping.recompute = {};
  const auto now = predict(job), kept = predict(keeping), each = predict(Every(job, 1));
  if (!now || !kept || !each) return "";
  const auto saves = [&](const PlanNeeds& needs) {
    return static_cast<double>(needs.memory) <
           (1 - kLeastSaving) * static_cast<double>(kept->memory);
  };
  if (saves(*now) || !saves(*each)) return "";
  return Str(
      "recompute = true saves nothing here: a stage that runs forward again has all of its "
      "activations at once, ",
      ShowBytes(now->memory), " at the peak; recompute = \"every:1\" would need ",
      ShowBytes(each->memory), ", with a step of ", FormatSeconds(each->step), " in place of ",
      FormatSeconds(now->step));
}

}  // namespace strata
