// A kind of change (Kind) is a list of variants, from the one that costs least to the one that
// saves most memory. WaysToFit() takes of each kind the cheapest variant that fits. A combination
// of kinds has the variants that take one of each; to keep them few, smaller micro-batches take
// part with their last variant only. Variants that differ in the last kind alone are tried from the
// one that saves most on, until one does not fit: those before it save less. If all kinds together
// do not make it fit, nothing is tried. While ways are compared, a schedule that the job leaves
// open is 1f1b, as choosing one takes many times as long; the ways that are found are predicted as
// the user will run them.
#include "engine/search/fit_ways.h"

#include <algorithm>
#include <iterator>
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
/// A kind of change.
struct Kind {
  /// The variants of a change of `job`, of which the plan needs `now`.
  std::vector<Variant> (*variants)(const Job& job, const PlanNeeds& now);
  bool is_ordered;  ///< each variant saves at least as much as the one before it
};

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

// Recomputing is not ordered: "auto", its first variant, can save more than "every:1".
constexpr Kind kKinds[] = {
    {Recomputing, false}, {SmallerMicroBatches, true}, {MoreStages, true}, {Sharding, true}};

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
    if (!CanFit()) return {};
    for (size_t count = 1; count <= std::size(kKinds) && found_.empty(); ++count) {
      is_combined_ = count > 1;
      Combine({{{"", job_}}}, 0, count);
    }
    std::ranges::stable_sort(found_, {}, [](const Found& found) { return Price(found.way); });
    if (found_.size() > kShown) found_.resize(kShown);
    std::vector<FitWay> ways;
    for (const Found& found : found_) ways.push_back(AsRun(found));
    std::ranges::stable_sort(ways, {}, Price);
    return ways;
  }

 private:
  /// Variants that differ in the last kind alone, in its order.
  using Group = std::vector<Variant>;
  struct Found {
    FitWay way;
    Job job;
  };

  /// The job with 1f1b and one stage on each rank where it leaves them open.
  static Job Quick(Job job) {
    if (job.schedule.name == "auto") job.schedule.name = "1f1b";
    if (job.stages_per_rank == 0) job.stages_per_rank = 1;
    return job;
  }

  FitWay AsRun(const Found& found) const {
    const std::optional<PlanNeeds> needs = predict_(found.job);
    if (needs && needs->memory <= limit_) return {found.way.flags, *needs};
    return {Str(found.way.flags, " --schedule=1f1b"), found.way.needs};
  }

  /// Whether the last variants of all kinds fit together, with any way to recompute.
  bool CanFit() const {
    Group group = {{"", job_}};
    for (const Kind& kind : kKinds) {
      Group changed;
      for (const Variant& before : group) {
        Group own = kind.variants(before.job, now_);
        if (own.empty()) own.push_back(before);
        if (kind.is_ordered) own.erase(own.begin(), own.end() - 1);
        std::ranges::move(own, std::back_inserter(changed));
      }
      group = std::move(changed);
    }
    return std::ranges::any_of(group, [&](const Variant& variant) {
      const std::optional<PlanNeeds> needs = predict_(Quick(variant.job));
      if (needs) return needs->memory <= limit_;
      // Impossible: fewer changes may be possible. The choice of layers refuses what does not fit.
      return variant.job.recompute.method != RecomputeSpec::Method::kAuto;
    });
  }

  /// Adds `count` of the kinds from `first` on to every one of `variants`, and keeps the best of
  /// each combination of kinds.
  void Combine(const std::vector<Group>& groups, size_t first, size_t count) {
    if (count == 0) return Keep(groups);
    for (size_t kind = first; kind + count <= std::size(kKinds); ++kind) {
      std::vector<Group> changed;
      for (const Group& group : groups) {
        for (const Variant& before : group) Change(before, kKinds[kind], changed);
      }
      if (!changed.empty()) Combine(changed, kind + 1, count - 1);
    }
  }

  void Change(const Variant& before, const Kind& kind, std::vector<Group>& changed) const {
    Group own = kind.variants(before.job, now_);
    if (is_combined_ && kind.variants == SmallerMicroBatches && own.size() > 1) {
      own.erase(own.begin(), own.end() - 1);
    }
    for (Variant& variant : own) {
      if (!before.flags.empty()) variant.flags = Str(before.flags, " ", variant.flags);
      if (!kind.is_ordered) changed.push_back({variant});
    }
    if (kind.is_ordered && !own.empty()) changed.push_back(std::move(own));
  }

  void Keep(const std::vector<Group>& groups) {
    std::optional<Found> best;
    for (const Group& group : groups) {
      std::optional<Found> own;
      for (auto variant = group.rbegin(); variant != group.rend(); ++variant) {
        const std::optional<PlanNeeds> needs = predict_(Quick(variant->job));
        if (!needs) continue;  // impossible; a smaller change may be possible
        if (needs->memory > limit_) break;
        const FitWay way = {variant->flags, *needs};
        if (!own || Price(way) <= Price(own->way)) own = Found{way, variant->job};
      }
      if (own && (!best || Price(own->way) < Price(best->way))) best = std::move(own);
    }
    if (best) found_.push_back(std::move(*best));
  }

  const Job& job_;
  const PlanNeeds& now_;
  const int64_t limit_;
  const PredictNeeds& predict_;
  bool is_combined_ = false;
  std::vector<Found> found_;
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
