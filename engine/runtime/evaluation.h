// Evaluation: computes the loss of a job's test data or of micro-batches that the caller brings,
// and the outputs of the last layer for them.
#pragma once

#include <atomic>
#include <memory>

#include "engine/runtime/batch_source.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/engine_tensors.h"
#include "engine/runtime/metrics.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/step/runner.h"
#include "engine/runtime/update/rank_stages.h"

namespace strata {

class Evaluation {
 public:
  /// Opens job.data.test if the job has one. All arguments must outlive this object.
  Evaluation(const RankContext& context, RankStages& stages, Runner& runner);

  /// Collective. Like Engine::EvalBatch().
  EvalResult OfBatch(const MicroBatches& batch, Outputs* outputs);
  /// Collective. Throws ConfigError if the job has no data.test. If `stop` is set on any rank, all
  /// ranks leave after the current run, unless it is the last one, and EvalResult::stop is set.
  EvalResult OfTestData(const std::atomic<bool>& stop);
  /// Collective. Like Engine::PredictBatch().
  void PredictBatch(const MicroBatches& batch, Outputs& outputs);
  /// Collective. Like Engine::PredictTestData().
  std::optional<Predicted> Predict(int64_t part);

 private:
  /// Calls `work` while the averages of the parameters (ema), if the job has some, are in place of
  /// the parameters. If `work` throws, the averages stay in place: exchanging them is collective,
  /// and after an error an engine can only be closed.
  template <class Work>
  void WithAverages(Work work);
  /// The number of this replica's first micro-batch in the run, counted over all replicas and runs.
  /// Random layers are seeded by it, so that their draws do not depend on how the data are divided
  /// into runs.
  int64_t FirstOfRun(int64_t run) const;
  int64_t FirstOf(const Feed& given) const { return int64_t{context_.replica} * given.most(); }

  const RankContext& context_;
  RankStages& stages_;
  Runner& runner_;
  Metrics metrics_;
  const int64_t micro_batches_;             // in one run of test_data_, per replica
  std::unique_ptr<BatchSource> test_data_;  // null if the job has none
};

}  // namespace strata
