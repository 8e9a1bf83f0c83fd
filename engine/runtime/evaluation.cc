// Adds up the Totals of all runs of an evaluation.
#include "engine/runtime/evaluation.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/layers/layer.h"
#include "engine/runtime/step/totals.h"

namespace strata {
namespace {

/// Micro-batches have a size of their own here. Enough of them run at a time to fill the pipe, but
/// not all, since a fast first stage would pile up messages.
Batch BatchOf(const Job& job, const Plan& plan) {
  Batch batch;
  batch.micro_batch_size = job.eval.batch > 0 ? job.eval.batch : plan.batch.micro_batch_size;
  batch.micro_batches =
      std::max<int64_t>(plan.batch.micro_batches, 4 * static_cast<int64_t>(plan.stages.size()));
  batch.size = batch.micro_batch_size * batch.micro_batches;
  return batch;
}

/// What an evaluation adds up over its runs.
struct Sums {
  double loss = 0, weight = 0, samples = 0, correct = 0, counted = 0;

  void Add(const Totals& totals) {
    for (const double sum : totals.loss_sums) loss += sum;
    weight += totals.weight();
    samples += totals.samples;
    correct += totals.correct;
    counted += totals.counted;
  }

  EvalResult Result() const {
    EvalResult result;
    result.loss = loss / LossDivisor(weight);
    result.samples = std::llround(samples);
    result.has_metric = counted > 0;
    if (result.has_metric) result.metric = correct / counted;
    return result;
  }
};

}  // namespace

Evaluation::Evaluation(const RankContext& context, Runner& runner)
    : context_(context),
      runner_(runner),
      test_data_(
          OpenRankSource(context, context.job.test_data, BatchOf(context.job, context.plan))) {}

EvalResult Evaluation::OfBatch(const MicroBatches& batch, Outputs* outputs) {
  const auto feed = FeedOf(batch, context_.replica, context_.replicas);
  // Replicas that are threads of this process write to one list, each to its own places; it has
  // this size already.
  if (outputs) outputs->list.resize(batch.list.size());
  Sums sums;
  sums.Add(runner_.Evaluate(*feed, outputs));
  return sums.Result();
}

EvalResult Evaluation::OfTestData() {
  if (!test_data_) throw ConfigError("the job has no data.test");
  Sums sums;
  for (int64_t run = 0; run < test_data_->runs_per_pass(); ++run) {
    sums.Add(runner_.Evaluate(*test_data_->Next(run), nullptr));
  }
  return sums.Result();
}

}  // namespace strata
