// Evaluation: the loss of a job's test data, or of micro-batches that the caller brings; and what
// the last layer gives for them.
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
  /// Opens job.data.test, if there is one. Everything must outlive this object.
  Evaluation(const RankContext& context, RankStages& stages, Runner& runner);

  /// Collective; as Engine::EvalBatch().
  EvalResult OfBatch(const MicroBatches& batch, Outputs* outputs);
  /// Collective. Throws ConfigError where the job has no data.test. Where somebody sets `stop` on
  /// any rank, all leave behind the run that goes on, unless it is the last; EvalResult::stop.
  EvalResult OfTestData(const std::atomic<bool>& stop);
  /// Collective; as Engine::PredictBatch().
  void PredictBatch(const MicroBatches& batch, Outputs& outputs);
  /// Collective; as Engine::PredictTestData().
  std::optional<Predicted> Predict(int64_t part);

 private:
  /// Runs `work` with the averages of the parameters, if the job has some (ema). Where it throws
  /// they stay in place: the exchange is collective, and after an error engines only close.
  template <class Work>
  void WithAverages(Work work);
  /// The number, among those of all replicas and runs, of this replica's first micro-batch in the
  /// run. Random layers draw by it, so that what they draw does not depend on how runs are cut.
  int64_t FirstOfRun(int64_t run) const;
  int64_t FirstOf(const Feed& given) const { return int64_t{context_.replica} * given.most(); }

  const RankContext& context_;
  RankStages& stages_;
  Runner& runner_;
  Metrics metrics_;
  const int64_t micro_batches_;             // of a run of test_data_, of each replica
  std::unique_ptr<BatchSource> test_data_;  // null where there is none
};

}  // namespace strata
