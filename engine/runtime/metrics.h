// Metrics: numbers about all outputs and targets of an evaluation (job.eval.metrics).
//
// Each micro-batch gives sums (right labels, squares of errors, a table of classes), which are
// put together over all micro-batches of all replicas in one order before anything is divided. So a
// metric is that of all samples at once, with the same bits for any plan.
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
  /// `loss`: the planned one (plan.h).
  Metrics(const Job& job, const LayerSpec& loss, LayerScript& script);
  ~Metrics() override;

  bool empty() const { return entries_.empty(); }
  /// Of the run that begins: the place of its first micro-batch among all of the evaluation.
  void BeginRun(int64_t first) { first_ = first; }
  void Read(int m, const Tensors& output, const Tensors& target) override;
  /// Collective: by name a number, or the rows of the table "confusion" (of true labels). Forgets
  /// what it read. `speaks`: whether this rank tells what it read.
  Value Take(double loss, bool speaks, Transport& transport);

 private:
  struct Entry;
  using Sums = std::vector<double>;

  std::vector<Entry> entries_;
  int64_t first_ = 0;
  std::map<std::pair<int64_t, int64_t>, Sums> sums_;  // by the entry, and the micro-batch's place
};

}  // namespace strata
