// Begin() fills in the RunSpec of a run, RunRow() executes it, and Step(), called by the executor
// at the row's last STEP, is where the ranks meet: it collects this rank's numbers, sums them over
// all ranks and runs the optimizers.
#include "engine/runtime/step/runner.h"

#include <time.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/tensors/device_memory.h"
#include "engine/base/text.h"
#include "engine/forecast/check_cost.h"
#include "engine/forecast/forecast.h"
#include "engine/job/lr_schedule.h"
#include "engine/layers/layer.h"
#include "engine/layers/loss_scope.h"
#include "engine/runtime/step/stage_seconds.h"

namespace strata {
namespace {

const Doing kEvaluationTotals = {-1, "SUM_LOSSES"};
const Doing kTieCheck = {-1, "TIE_CHECK"};
const Doing kInputs = {-1, "READ_INPUTS"};
const Doing kUpdates = {-1, "STEP"};
const Doing kPartNames = {-1, "LOSS_PARTS"};

/// Processor seconds of the calling thread.
double ProcessorSeconds() {
  timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Collective: the steps between two checked ones. For a share of the time rank 0 decides.
int64_t CheckedEvery(const RankContext& context) {
  const Job& job = context.job;
  if (job.check.every > 0) return job.check.every;
  double every = 0;
  if (context.rank() == 0) {
    const CheckCost cost =
        ForecastCheck(job, context.plan, ForecastHere(job, context.plan, &context.script));
    every = static_cast<double>(cost.every);
  }
  return static_cast<int64_t>(context.transport.AllReduceSum({every})[0]);
}

std::string PartsText(const std::vector<std::string>& names) {
  return names.empty() ? "(none)" : Join(names, ", ");
}

}  // namespace

Runner::Runner(const RankContext& context, Links& links, RankStages& stages, Tracer* tracer,
               std::shared_ptr<ProvedPrograms> programs)
    : context_(context),
      stages_(stages),
      tracer_(tracer),
      executor_(links, {}, context.pipe_ranks, context.progress),
      news_(context.transport, links, context.plan, context.pipe_ranks, context.device,
            context.progress) {
  if (IsChecked(context.job, context.plan)) {
    check_.emplace(context, stages, CheckedEvery(context));
  }
  Rebuild(std::move(programs));
}

void Runner::Rebuild(std::shared_ptr<ProvedPrograms> programs) {
  if (check_) check_->Forget();
  executor_.set_stages(stages_.by_number());
  tables_.push_back(std::make_unique<RunTables>(context_.job, context_.plan, context_.script,
                                                context_.pipe_rank, std::move(programs)));
}

const Totals& Runner::Train(Feed& feed, const StepAsked& asked) {
  asked_ = &asked;
  run_ = {};
  BeginStep(feed, asked.step);
  if (check_ && check_->IsChecked(asked.step)) {
    run_.record = check_->Begin(asked.step, run_.micro_batches());
    run_.reports_passing = false;  // a sum that has begun could not be recorded any more
  }
  totals_ = EmptyTotals(feed, stages_.parameters().chunks());
  totals_.loss_scale = run_.loss_scale;
  if (asked.times_stages) {
    totals_.stage_seconds.resize(2 * StagesBefore(context_.plan, context_.transport.world_size()));
    totals_.processor_share.resize(totals_.peak_memory.size());
  }
  const int64_t every = context_.job.tie_check;
  if (every > 0 && asked.step % every == 0) {
    const AtWork at_work(context_.progress, kTieCheck);
    stages_.ties().Check(context_.progress);
  }
  const Row& row = tables().Training(run_.micro_batches());
  if (tracer_) tracer_->Record(asked.step, row.instructions.size());
  RunRow(row);
  asked_ = nullptr;
  ShareNames();
  return totals_;
}

void Runner::Examine(Feed& feed, int64_t step, Examiner& examiner) {
  const Totals totals = totals_;
  run_ = {};
  run_.examiner = &examiner;
  BeginStep(feed, step);
  // Update() divides by this scale. The scale of the next step may already be another.
  run_.loss_scale = totals.loss_scale;
  RunRow(tables().Training(run_.micro_batches()));
  totals_ = totals;
}

const Totals& Runner::Evaluate(Feed& feed, const EvaluationAsked& asked) {
  run_ = {};
  run_.first_micro_batch = asked.first_micro_batch;
  run_.reader = asked.reader;
  run_.training = false;
  run_.keep_outputs = asked.outputs != nullptr;
  run_.count_hits = context_.job.eval.metric == "accuracy";
  Begin(feed);
  totals_ = EmptyTotals(feed, 0);
  if (run_.micro_batches() > 0) RunRow(tables().Evaluation(run_.micro_batches()));
  {
    const AtMeeting meeting(context_.progress, kEvaluationTotals);
    CollectLosses();
    totals_.stop = asked.stop ? 1 : 0;
    totals_.AllReduce(context_.transport);
  }
  ShareNames();
  if (asked.outputs) CollectOutputs(feed, *asked.outputs);
  return totals_;
}

void Runner::Predict(Feed& feed, Outputs& outputs, const PredictionAsked& asked) {
  run_ = {};
  run_.first_micro_batch = asked.first_micro_batch;
  run_.kept_tokens = asked.kept;
  run_.watch = asked.watch;
  run_.training = false;
  run_.keep_outputs = true;
  run_.has_targets = false;
  Begin(feed);
  if (run_.micro_batches() > 0) RunRow(tables().Evaluation(run_.micro_batches()));
  CollectOutputs(feed, outputs);
}

void Runner::CollectOutputs(const Feed& feed, Outputs& outputs) const {
  const Stage* last = stages_.last();
  if (!last || !context_.speaks_for_axis()) return;
  const int first = context_.replica * feed.most();
  for (int m = 0; m < run_.micro_batches(); ++m) outputs.list[first + m] = last->output(m);
}

Totals Runner::EmptyTotals(const Feed& feed, int64_t chunks) const {
  const int micro_batches = feed.most() * context_.replicas;
  Totals totals(micro_batches, chunks, context_.transport.world_size());
  if (context_.job.loss.scripted) totals.part_sums.resize(micro_batches * kMostLossParts);
  return totals;
}

void Runner::BeginStep(Feed& feed, int64_t step) {
  run_.training = true;
  stages_.set_replicas_are_even(feed.is_even());
  run_.reports_passing = run_.examiner == nullptr && stages_.sums_early();
  run_.loss_scale = stages_.loss_scale().value();
  // Replicas divide a given batch of any size evenly. The numbers are as if there were one replica.
  run_.first_micro_batch = step * context_.replicas * context_.plan.batch.micro_batches +
                           int64_t{context_.replica} * feed.most();
  Begin(feed);
}

void Runner::Begin(Feed& feed) {
  run_.feed = &feed;
  run_.reads_ahead = !context_.device.is_cpu();
  inputs_seconds_ = 0;
  const bool is_known = !feed.inputs().empty();
  if (!is_known || news_.is_for_all()) {
    const AtWork at_work(context_.progress, kInputs);
    std::vector<TensorSpecs> inputs = news_.Share([&] {
      if (is_known) return feed.inputs();
      context_.progress.ReadData(&feed.origin().name);
      const auto begin = std::chrono::steady_clock::now();
      std::vector<TensorSpecs> read = feed.ReadInputs();
      inputs_seconds_ =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
      return read;
    });
    if (!is_known) feed.set_inputs(std::move(inputs));
  }
  tables().Forget();
  for (size_t m = 0; m < feed.inputs().size(); ++m) run_.boundaries.push_back(&BoundariesOf(m));
}

const Boundaries& Runner::BoundariesOf(size_t m) {
  const std::vector<TensorSpecs>& inputs = run_.feed->inputs();
  if (m > 0 && inputs[m] == inputs[m - 1]) return *run_.boundaries.back();
  try {
    return tables().BoundariesOf(inputs[m]);
  } catch (const ConfigError& error) {
    throw ConfigError(
        Str("micro-batch ", m, " from ", run_.feed->origin().name, ": ", error.what()));
  }
}

void Runner::RunRow(const Row& row) {
  const AtWork at_work(context_.progress, row.instructions.front().doing);
  context_.progress.set_in_row(asked_ != nullptr);
  begin_ = FlightRing::Now();
  waited_before_ = context_.progress.flight().waited();
  processor_before_ = ProcessorSeconds();
  executor_.Run(row, run_, *this);
  context_.progress.set_in_row(false);
  if (tracer_) tracer_->Pause();
}

void Runner::Step() {
  stages_.FinishGradients(totals_.squares, fetch_);
  if (run_.examiner) return fetch_.Fetch();
  CollectLosses();
  CollectOwnNumbers();
  totals_.lr_factor = context_.rank() == 0 ? LrFactorOfStep() : 0;
  totals_.recut = context_.rank() == 0 && asked_->recut ? 1 : 0;
  totals_.stop = asked_->requests.stop ? 1 : 0;
  totals_.save = asked_->requests.save.exchange(false) ? 1 : 0;
  if (run_.record) check_->CheckRow(run_);
  context_.progress.WaitForAll();
  totals_.AllReduce(context_.transport);
  gradients_.clear();
  if (asked_->record_gradients) {
    gradients_ = stages_.GradientDigests();
    for (TensorDigest& gradient : gradients_) gradient.norm /= totals_.divisor();
  }
  histograms_ = {};
  if (asked_->record_histograms && totals_.are_finite()) {
    histograms_ = stages_.GradientHistograms(totals_.divisor());
  }
  context_.progress.Compute();
  if (totals_.are_finite()) RunOptimizers();
}

void Runner::Update() {
  const AtWork at_work(context_.progress, kUpdates);
  run_.record = nullptr;
  RunOptimizers();
  if (check_) check_->Forget();
}

void Runner::RunOptimizers() {
  const double factor = ClipFactor(context_.job.clip, totals_.grad_norm());
  const double divisor = totals_.divisor() / factor;
  const auto update = [&] {
    const int64_t begin = FlightRing::Now();
    stages_.Update(totals_.lr_factor, divisor);
    update_seconds_ = 1e-9 * static_cast<double>(FlightRing::Now() - begin);
  };
  if (run_.record) {
    check_->CheckUpdate(totals_.lr_factor, divisor, update);
  } else {
    update();
  }
  if (check_ && asked_) check_->AfterUpdate(asked_->step);
}

/// Collects the losses of this rank. Also fetches everything else that the device has for the
/// Totals, so that the host waits only once per step.
void Runner::CollectLosses() {
  const Stage* last = stages_.last();
  if (!last || !context_.speaks_for_axis()) return fetch_.Fetch();
  const int first = context_.replica * run_.feed->most();
  std::vector<double> hits(2 * run_.micro_batches());
  for (int m = 0; m < run_.micro_batches(); ++m) {
    const LossValue& loss = last->loss(m);
    fetch_.Want(loss.sum, std::span(totals_.loss_sums).subspan(first + m, 1));
    totals_.weights[first + m] = loss.weight;
    if (loss.device_weight.defined()) {
      fetch_.Want(loss.device_weight, std::span(totals_.weights).subspan(first + m, 1));
    }
    CollectLossParts(m, kMostLossParts * static_cast<size_t>(first + m));
    totals_.samples += static_cast<double>(run_.feed->rows(m));
    const Hits& counted = last->hits(m);
    totals_.correct += static_cast<double>(counted.correct);
    totals_.counted += static_cast<double>(counted.counted);
    if (counted.on_device.defined()) {
      fetch_.Want(counted.on_device, std::span(hits).subspan(2 * m, 2));
    }
  }
  fetch_.Fetch();
  for (size_t i = 0; i < hits.size(); i += 2) {
    totals_.correct += hits[i];
    totals_.counted += hits[i + 1];
  }
}

/// Collects the loss parts of micro-batch m; `place`: the index of its first part in part_sums. All
/// micro-batches of a training must have parts with the same names.
void Runner::CollectLossParts(int m, size_t place) {
  const LossParts& parts = stages_.last()->loss_parts(m);
  std::vector<std::string> names;
  for (const auto& [name, sum] : parts) {
    names.push_back(name);
    fetch_.Want(sum, std::span(totals_.part_sums).subspan(place++, 1));
  }
  if (has_losses_ && names != part_names_) {
    throw ConfigError(Str(Place(context_.job.loss.where), "the loss function gives the parts ",
                          PartsText(names), " for micro-batch ", m, ", before it gave ",
                          PartsText(part_names_), "; it gives the same ones each time"));
  }
  has_losses_ = true;
  part_names_ = names;
  if (!names.empty()) totals_.has_parts = 1;
}

/// Collective, once, after the first run whose loss has parts: tells all ranks their names.
void Runner::ShareNames() {
  if (totals_.has_parts == 0 || names_are_shared_) return;
  const AtMeeting meeting(context_.progress, kPartNames);
  for (const std::string& text : context_.transport.Gather(Join(part_names_, "\n"))) {
    const std::vector<std::string> names = Split(text, '\n');
    if (text.empty() || names == part_names_) continue;
    if (has_losses_ && stages_.last()) {
      throw ConfigError(Str(Place(context_.job.loss.where), "the loss function gives the parts ",
                            PartsText(part_names_), " on one replica and ", PartsText(names),
                            " on another"));
    }
    part_names_ = names;
  }
  names_are_shared_ = true;
}

void Runner::CollectOwnNumbers() {
  totals_.data_seconds[context_.rank()] = inputs_seconds_ + executor_.data_seconds();
  // A rank's update overlaps with the beginning of the others' next step, so it counts for that
  // step.
  const auto seconds = [](int64_t nanoseconds) { return 1e-9 * static_cast<double>(nanoseconds); };
  const double row = seconds(FlightRing::Now() - begin_) + update_seconds_;
  const double waited = seconds(context_.progress.flight().waited() - waited_before_);
  totals_.row_seconds[context_.rank()] = row;
  totals_.busy_seconds[context_.rank()] = std::max(0.0, row - waited - executor_.data_seconds());
  if (asked_->times_stages) {
    CollectStageSeconds(totals_.busy_seconds[context_.rank()] - update_seconds_);
  }
  const int account = context_.memory_account();
  const MemoryUse use = MemoryOn(context_.device, account);
  totals_.peak_memory[context_.rank()] = static_cast<double>(use.peak);
  ResetPeakMemoryOn(context_.device, account);
}

/// Collects the seconds of the stages per micro-batch. `computed`: seconds in which the rank
/// computed in the row. A rank that polls for messages before it sleeps uses its core meanwhile, so
/// a small loss of its core to other programs goes unnoticed.
void Runner::CollectStageSeconds(double computed) {
  const size_t first = 2 * StagesBefore(context_.plan, context_.rank());
  const double micro_batches = std::max(1, run_.micro_batches());
  auto next = totals_.stage_seconds.begin() + static_cast<std::ptrdiff_t>(first);
  for (const OwnStage& own : stages_.own()) {
    const StageSeconds& seconds = executor_.seconds(own.stage->number());
    *next++ = seconds.forward / micro_batches;
    *next++ = seconds.backward / micro_batches;
  }
  const double had = ProcessorSeconds() - processor_before_;
  totals_.processor_share[context_.rank()] = computed > 0 ? std::min(1.0, had / computed) : 1;
  totals_.clear_seconds = executor_.begin_seconds();
  // With replicas the time would include waiting for each other.
  if (context_.replicas == 1) totals_.norm_seconds = executor_.reduce_seconds();
  totals_.update_seconds = update_seconds_;
}

double Runner::LrFactorOfStep() const {
  const double scheduled =
      LrFactor(context_.job.lr_schedule, asked_->step, asked_->total_steps, &context_.script);
  return scheduled * stages_.monitors().lr_factor();
}

}  // namespace strata
