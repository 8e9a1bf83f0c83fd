// An evaluation runs the evaluation program on the parts of the test data, one run after the other.
// Each run's Totals hold, on all ranks, the loss and the weight of every micro-batch; their sums
// over all runs give the mean loss. For predictions every rank sends the outputs of its
// micro-batches to rank 0 as text (a line of JSON with shapes, then the bytes), where they are put
// in the order of micro-batches and neighbouring blocks with equal row shapes are joined.
#include "engine/runtime/evaluation.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/job/data_source.h"
#include "engine/layers/layer.h"
#include "engine/layers/loss_scope.h"
#include "engine/runtime/step/totals.h"

namespace strata {
namespace {

/// The batch of a run of an evaluation. Evaluations have their own size of micro-batches. A run has
/// enough of them to fill the pipeline but not all of them, because a fast first stage would pile
/// up messages.
Batch BatchOf(const Job& job, const Plan& plan) {
  Batch batch;
  batch.micro_batch_size = job.eval.batch > 0 ? job.eval.batch : plan.batch.micro_batch_size;
  batch.micro_batches =
      std::max<int64_t>(plan.batch.micro_batches, 4 * static_cast<int64_t>(plan.stages.size()));
  batch.size = batch.micro_batch_size * batch.micro_batches;
  return batch;
}

bool SameRows(const OutputRows& rows, const OutputRows& others) {
  const auto &a = rows.spec.shape, &b = others.spec.shape;
  return rows.spec.dtype == others.spec.dtype &&
         std::equal(a.begin() + 1, a.end(), b.begin() + 1, b.end());
}

/// The sums of an evaluation over its runs.
struct Sums {
  double loss = 0, weight = 0, samples = 0, correct = 0, counted = 0;
  std::array<double, kMostLossParts> parts = {};

  /// Adds micro-batch by micro-batch, because how many of them a run has depends on the plan.
  void Add(const Totals& totals) {
    for (const double sum : totals.loss_sums) loss += sum;
    for (const double one : totals.weights) weight += one;
    for (size_t i = 0; i < totals.part_sums.size(); ++i) {
      parts[i % kMostLossParts] += totals.part_sums[i];
    }
    samples += totals.samples;
    correct += totals.correct;
    counted += totals.counted;
  }

  EvalResult Result(const std::vector<std::string>& part_names) const {
    EvalResult result;
    result.loss = loss / LossDivisor(weight);
    result.samples = std::llround(samples);
    result.has_metric = counted > 0;
    if (result.has_metric) result.metric = correct / counted;
    for (size_t i = 0; i < part_names.size(); ++i) {
      result.parts.emplace_back(part_names[i], parts[i] / LossDivisor(weight));
    }
    return result;
  }
};

const Doing kMetrics = {-1, "GATHER_METRICS"};
const Doing kPredictions = {-1, "GATHER_OUTPUTS"};

/// True if the data source, or one that it reads from, replaces broken samples by others.
bool SkipsBroken(const Value& source) {
  const Value& of = source["of"];
  if (of.is_map() && SkipsBroken(of)) return true;
  if (of.is_list() && std::ranges::any_of(of.as_list(), SkipsBroken)) return true;
  return source["broken"] == Value("skip");
}

/// Throws ConfigError if row i of the predictions would not belong to sample i.
void CheckOrder(const DataSpec& data) {
  if (FindOption(data.options, "shuffle") == Value(true)) {
    throw ConfigError("predictions come in the order of the data: leave out data.test's shuffle");
  }
  if (SkipsBroken(data.options)) {
    throw ConfigError(
        "predictions are a row for each sample: with data.test's broken=\"skip\" a broken file "
        "would get another one's; leave it out, and the first broken file is named");
  }
}

/// Throws ConfigError unless each output has one row per sample. `first`: the index in `outputs` of
/// the feed's micro-batch 0.
void CheckRows(const Outputs& outputs, const Feed& feed, size_t first) {
  for (size_t i = 0; i < outputs.list.size(); ++i) {
    const Tensors& tensors = outputs.list[i];
    for (size_t k = 0; k < tensors.size(); ++k) {
      const TensorSpec spec = SpecOf(tensors[k]);
      const int64_t samples = feed.rows(static_cast<int>(i - first));
      if (!spec.shape.empty() && spec.shape[0] == samples) continue;
      throw ConfigError(
          Str("predictions are a row for each sample; the last layer gives ", spec.ToString(),
              tensors.size() > 1 ? Str(" as output_", k) : "", " for ", Plural(samples, "sample"),
              spec.shape.empty() ? "; loss:expand(x:size(0)) gives a number to each sample" : ""));
    }
  }
}

/// The outputs that this rank has, for rank 0: a line of JSON with their places and shapes, then
/// their bytes.
std::string ToText(const Outputs& outputs) {
  Value::List head;
  std::string bytes;
  for (size_t i = 0; i < outputs.list.size(); ++i) {
    for (const at::Tensor& output : outputs.list[i]) {
      const at::Tensor tensor = output.to(at::kCPU).contiguous();
      const TensorSpec spec = SpecOf(tensor);
      Value entry;
      entry.Set("place", static_cast<int64_t>(i)).Set("dtype", DTypeName(spec.dtype));
      head.push_back(entry.Set("shape", Value::IntList(spec.shape)));
      bytes.append(static_cast<const char*>(tensor.const_data_ptr()),
                   static_cast<size_t>(spec.bytes()));
    }
  }
  return Str(Value(head).ToJson(), "\n", bytes);
}

/// Joins the rows of all ranks in the order of micro-batches.
Predicted Joined(const std::vector<std::string>& texts) {
  std::map<int64_t, std::vector<OutputRows>> parts;
  for (const std::string& text : texts) {
    const size_t end = text.find('\n');
    std::string_view rest = std::string_view(text).substr(end + 1);
    const Value head = Value::FromJson(text.substr(0, end));
    for (const Value& entry : head.as_list()) {
      const TensorSpec spec = {entry["shape"].as_ints(), ParseDType(entry["dtype"].as_string())};
      const auto count = static_cast<size_t>(spec.bytes());
      parts[entry["place"].as_int()].push_back({spec, std::string(rest.substr(0, count))});
      rest.remove_prefix(count);
    }
  }
  Predicted all;
  for (auto& [place, outputs] : parts) {
    if (all.empty() || !std::ranges::equal(all.back(), outputs, SameRows)) {
      all.push_back(std::move(outputs));
      continue;
    }
    for (size_t k = 0; k < outputs.size(); ++k) {
      all.back()[k].spec.shape[0] += outputs[k].spec.shape[0];
      all.back()[k].bytes += outputs[k].bytes;
    }
  }
  return all;
}

}  // namespace

Evaluation::Evaluation(const RankContext& context, RankStages& stages, Runner& runner)
    : context_(context),
      stages_(stages),
      runner_(runner),
      metrics_(context.job, PlannedLoss(context.job, context.plan), context.script),
      micro_batches_(BatchOf(context.job, context.plan).micro_batches),
      test_data_(
          OpenRankSource(context, context.job.test_data, BatchOf(context.job, context.plan))) {}

template <class Work>
void Evaluation::WithAverages(Work work) {
  stages_.SwapAverages();
  work();
  stages_.SwapAverages();
}

int64_t Evaluation::FirstOfRun(int64_t run) const {
  return (run * context_.replicas + context_.replica) * micro_batches_;
}

EvalResult Evaluation::OfBatch(const MicroBatches& batch, Outputs* outputs) {
  const auto feed = FeedOf(batch, context_.replica, context_.replicas);
  // Replicas that are threads of this process write to one list, each to its own entries; the list
  // already has this size then, so this call does not change it.
  if (outputs) outputs->list.resize(batch.list.size());
  Sums sums;
  const EvaluationAsked asked = {.first_micro_batch = FirstOf(*feed), .outputs = outputs};
  WithAverages([&] { sums.Add(runner_.Evaluate(*feed, asked)); });
  return sums.Result(runner_.part_names());
}

EvalResult Evaluation::OfTestData(const std::atomic<bool>& stop) {
  if (!test_data_) throw ConfigError("the job has no data.test");
  Sums sums;
  bool is_left = false;
  WithAverages([&] {
    const int64_t runs = test_data_->runs_per_pass();
    ProgressLine line("evaluating", runs, ProgressForm::kCount);
    for (int64_t run = 0; run < runs && !is_left; ++run) {
      const auto feed = test_data_->Next(run);
      const int64_t first = FirstOfRun(run);
      metrics_.BeginRun(first);
      const Totals& totals =
          runner_.Evaluate(*feed, {.first_micro_batch = first,
                                   .reader = metrics_.empty() ? nullptr : &metrics_,
                                   .stop = stop});
      sums.Add(totals);
      line.Advance();
      is_left = totals.stop > 0 && run + 1 < runs;
    }
  });
  if (is_left) return {.stop = true};
  EvalResult result = sums.Result(runner_.part_names());
  if (!metrics_.empty()) {
    const AtMeeting meeting(context_.progress, kMetrics);
    const bool speaks = context_.speaks_for_axis();
    result.metrics = metrics_.Take(result.loss, speaks, context_.transport);
  }
  return result;
}

void Evaluation::PredictBatch(const MicroBatches& batch, Outputs& outputs) {
  const auto feed = FeedOf(batch, context_.replica, context_.replicas);
  outputs.list.resize(batch.list.size());  // as in OfBatch()
  const PredictionAsked asked = {.first_micro_batch = FirstOf(*feed)};
  WithAverages([&] { runner_.Predict(*feed, outputs, asked); });
}

std::optional<Predicted> Evaluation::Predict(int64_t part) {
  if (!test_data_) throw ConfigError("the job has no data.test, which predictions are made for");
  CheckOrder(context_.job.test_data);
  if (part >= test_data_->runs_per_pass()) return std::nullopt;
  ProgressLine line("predicting", test_data_->runs_per_pass(), ProgressForm::kCount);
  const auto feed = test_data_->Next(part);
  Outputs outputs;
  outputs.list.resize(static_cast<size_t>(feed->most() * context_.replicas));
  const PredictionAsked asked = {.first_micro_batch = FirstOfRun(part)};
  WithAverages([&] { runner_.Predict(*feed, outputs, asked); });
  line.Advance(part + 1);
  CheckRows(outputs, *feed, static_cast<size_t>(feed->most() * context_.replica));
  const AtMeeting meeting(context_.progress, kPredictions);
  const std::vector<std::string> texts = context_.transport.Gather(ToText(outputs));
  return context_.rank() == 0 ? Joined(texts) : Predicted();
}

}  // namespace strata
