// Metrics: numbers about all outputs and targets of an evaluation (job.eval.metrics).
//
// Each micro-batch gives sums (correct labels, squared errors, a confusion table). These sums are
// added over all micro-batches of all replicas in one fixed order before anything is divided. So a
// metric is computed over all samples at once, with the same bits for any plan.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/job/job.h"
#include "engine/layers/layer.h"
#include "engine/runtime/stage/run_spec.h"

namespace strata {

class Metrics : public OutputReader {
 public:
  /// `loss`: the planned loss (plan.h).
  Metrics(const Job& job, const LayerSpec& loss, LayerScript& script);
  ~Metrics() override;

  bool empty() const { return entries_.empty(); }
  /// Begins a run. `first`: the index of its first micro-batch among all micro-batches of the
  /// evaluation.
  void BeginRun(int64_t first) { first_ = first; }
  void Read(int m, const Tensors& output, const Tensors& target) override;
  /// Collective. Returns the metrics by name: numbers, or the rows of the table "confusion" (one
  /// row per true label). Resets the sums. `speaks`: true if this rank contributes what it read;
  /// other ranks of its model axis have read the same.
  Value Take(double loss, bool speaks, Transport& transport);

 private:
  struct Entry;
  using Sums = std::vector<double>;

  std::vector<Entry> entries_;
  int64_t first_ = 0;
  // By (index of the entry, index of the micro-batch).
  std::map<std::pair<int64_t, int64_t>, Sums> sums_;
};

}  // namespace strata
