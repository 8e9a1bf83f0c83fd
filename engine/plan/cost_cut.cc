#include "engine/plan/cost_cut.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/best_cut.h"
#include "engine/spec/select.h"

namespace strata::partition {
namespace {

constexpr double kPicoseconds = 1e12;

/// The segments that hold wherever the cuts are; {every=N} counts as if each layer were one.
std::vector<int> SegmentsOf(const Job& job) {
  using Method = RecomputeSpec::Method;
  std::vector<int> segments;
  switch (job.recompute.method) {
    case Method::kStages:
      segments.assign(job.layers.size(), 0);
      break;
    case Method::kEvery:
      segments.resize(job.layers.size());
      for (size_t i = 0; i < segments.size(); ++i) {
        segments[i] = static_cast<int>(i) / job.recompute.every;
      }
      break;
    case Method::kLayers:
      segments.assign(job.layers.size(), -1);
      for (const int i : SelectLayers(job.recompute.layers, job.layers, "recompute")) {
        segments[static_cast<size_t>(i)] = i;
      }
      break;
    case Method::kNone:
    case Method::kFunction:
    case Method::kAuto:
      break;
  }
  return segments;
}

class Cutter {
 public:
  Cutter(const Job& job, const ModelCosts& costs, const CostCutOptions& options)
      : costs_(costs), options_(options), segments_(SegmentsOf(job)) {}

  std::vector<int> Cut() const {
    const std::vector<int> bounds = Best(options_.by_memory, options_.limit);
    if (!bounds.empty()) return bounds;
    const std::vector<int> least = Best(/*by_memory=*/true, 0);
    int64_t needed = 0;
    for (size_t s = 0; s + 1 < least.size(); ++s) {
      needed = std::max(needed, BytesOf(static_cast<int>(s), least[s], least[s + 1]));
    }
    throw ConfigError(Str("memory: no cut into ", Plural(stages(), "stage"), " keeps to ",
                          FormatBytes(static_cast<double>(options_.limit)),
                          " on each; the least is ", FormatBytes(static_cast<double>(needed)),
                          ", with the cuts ", Join(least, ", "),
                          "; recompute, smaller micro-batches or more stages need less"));
  }

 private:
  int stages() const { return static_cast<int>(options_.settings.size()); }

  std::vector<int> Best(bool by_memory, int64_t limit) const {
    const PartCost cost = [&](int stage, int begin, int end) -> std::optional<int64_t> {
      const int64_t bytes = limit > 0 || by_memory ? BytesOf(stage, begin, end) : 0;
      if (limit > 0 && bytes > limit) return std::nullopt;
      return by_memory ? bytes : TimeOf(begin, end);
    };
    return BestCut(static_cast<int>(costs_.layers.size()), stages(), cost);
  }

  int64_t BytesOf(int stage, int begin, int end) const {
    const StageCost sum = SumLayers(costs_, begin, end, segments_);
    return StageBytes(costs_, sum, options_.settings[static_cast<size_t>(stage)]);
  }

  int64_t TimeOf(int begin, int end) const {
    const StageCost sum = SumLayers(costs_, begin, end, segments_);
    double each = sum.forward.seconds + sum.input_grad.seconds + sum.weight_grad.seconds +
                  sum.recompute.seconds;
    if (begin == 0) each += costs_.input_seconds;
    if (end == static_cast<int>(costs_.layers.size())) each += costs_.target_seconds;
    const double once = static_cast<double>(sum.parameters) *
                        (costs_.update_seconds + costs_.norm_seconds + costs_.clear_seconds);
    const double seconds = static_cast<double>(options_.micro_batches) * each + once;
    return std::llround(seconds * kPicoseconds);
  }

  const ModelCosts& costs_;
  const CostCutOptions& options_;
  const std::vector<int> segments_;
};

}  // namespace

std::vector<int> CutByCosts(const Job& job, const ModelCosts& costs,
                            const CostCutOptions& options) {
  return Cutter(job, costs, options).Cut();
}

}  // namespace strata::partition
