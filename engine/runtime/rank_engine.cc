// Defines the order in which the components of a rank open, step and close. A training step: finish
// a save that is due, run the row (Runner), handle values that are not finite, then start or poll a
// save, and last decide about moving layers.
#include "engine/runtime/rank_engine.h"

#include <ATen/Context.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/machine/cores.h"
#include "engine/base/tensors/device_memory.h"
#include "engine/base/tensors/threads.h"
#include "engine/base/text.h"
#include "engine/comm/cuda/use_device.h"
#include "engine/forecast/run_profile.h"
#include "engine/layers/layer.h"
#include "engine/plan/plan_text.h"
#include "engine/plan/rank_speeds.h"
#include "engine/runtime/make_engine.h"
#include "engine/runtime/step/stage_seconds.h"
#include "engine/runtime/time_rank.h"
#include "engine/runtime/trainer.h"
#include "engine/runtime/update/model_axis.h"
#include "engine/runtime/watch/gather_trace.h"
#include "engine/runtime/watch/stack.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

const Doing kRecuts = {-1, "RECUT"};
const Doing kSpeeds = {-1, "SPEEDS"};
const Doing kDigests = {-1, "DIGEST"};
const Doing kTensors = {-1, "READ_TENSOR"};
const Doing kReports = {-1, "COMM_LOG"};
const Doing kTraces = {-1, "TRACE"};

int IndexOn(const Topology& topology, std::string_view axis, int rank) {
  return topology.Has(axis) ? topology.Index(rank, axis) : 0;
}

int SizeOf(const Topology& topology, std::string_view axis) {
  return std::max(1, topology.Size(axis));
}

/// Sets up the calling thread for the rank (memory account, share of the machine's cores, device)
/// and returns the context that all components share.
RankContext OpenContext(const Job& job, const Plan& plan, EngineScript& script,
                        const RankServices& services) {
  const int rank = services.transport->rank(), model = SizeOf(plan.topology, kModelAxis);
  RankContext context = {
      .job = job,
      .plan = plan,
      .script = script,
      .transport = *services.transport,
      .progress = *services.progress,
      .device = at::kCPU,
      .pipe_ranks = plan.topology.CommList(kPipeAxis, rank),
      .pipe_rank = plan.topology.Index(rank, kPipeAxis),
      .replica = IndexOn(plan.topology, kDataAxis, rank),
      .replicas = SizeOf(plan.topology, kDataAxis),
      .model_axis = OpenModelAxis(*services.transport, *services.progress),
  };
  STRATA_CHECK(model == 1 || context.model_axis) << "no group of the model";
  PrepareStacks();  // needed before other threads may ask for its stack
  services.progress->set_thread(static_cast<int>(::syscall(SYS_gettid)));
  InstallAllocator();
  SetMemoryAccount(context.memory_account());
  const int share = std::max(1, MachineCores() / services.local_ranks);
  SetThreads(job.threads > 0 ? job.threads : share);
  context.device = UseDevice(plan.device, services.local_rank);
  RunBackwardHere();
  const bool tf32 = job.precision.name == "tf32";
  at::globalContext().setAllowTF32CuBLAS(tf32);
  at::globalContext().setAllowTF32CuDNN(tf32);
  return context;
}

MeasuredStep Measured(const Totals& totals, const Plan& plan, double seconds) {
  return {.stages = MeasuredStages(totals, plan),
          .seconds = seconds,
          .clear = totals.clear_seconds,
          .norm = totals.norm_seconds,
          .update = totals.update_seconds,
          .processor_share = std::ranges::min(totals.processor_share)};
}

}  // namespace

RankEngine::Components::Components(const RankContext& context, Links& links, Tracer* tracer,
                                   int local_ranks, std::shared_ptr<ProvedPrograms> programs)
    : stages(context),
      train_data(context.job.trains
                     ? OpenRankSource(context, context.job.train_data, context.plan.batch)
                     : nullptr),
      runner(context, links, stages, tracer, std::move(programs)),
      evaluation(context, stages, runner),
      generation(context, stages, runner),
      nonfinite_steps(context, stages, runner),
      saves(context, stages, local_ranks, steps_per_epoch()) {}

int64_t RankEngine::Components::steps_per_epoch() const {
  return train_data ? train_data->runs_per_pass() : 0;
}

RankEngine::RankEngine(Job job, Plan plan, EngineScript& script, RankServices services)
    : job_(std::move(job)),
      plan_(std::move(plan)),
      services_(std::move(services)),
      current_(services_.transport.get()),
      context_(OpenContext(job_, plan_, script, services_)) {
  OpenCommLog();
  if (!job_.trace.empty()) OpenTracer();
  Links& links = logged_links_ ? static_cast<Links&>(*logged_links_) : *services_.transport;
  components_ = std::make_unique<Components>(context_, links, tracer_ ? &*tracer_ : nullptr,
                                             services_.local_ranks, services_.programs);
  steps_per_epoch_ = components_->steps_per_epoch();
  start_ = components_->saves.start();
  step_ = start_.step;
  skipped_ = start_.skipped;
  record_gradients_ = job_.grad_norms;
  rebalances_ = Rebalancer::WhyNot(job_, plan_, *services_.programs, &script).empty();
  if (rebalances_ && rank() == 0) rebalancer_.emplace(job_, plan_, &script);
  const bool tells = TellsOfLayers(job_, plan_);
  if (tells && rank() == 0) window_.emplace();
  times_stages_ = tells || rebalances_;
  if (job_.ranks.measured && job_.trains && plan_.pipe() > 1) MeasureSpeeds();
}

/// Times all ranks at once, and moves layers to the cuts that are best for their speeds. Rank 0
/// chooses the cuts for all.
void RankEngine::MeasureSpeeds() {
  std::vector<double> rates;
  {
    const AtMeeting meeting(*services_.progress, kSpeeds);
    services_.transport->AllReduceSum({0});  // all begin together, as they run together
    const double rate = TimeRank(context_.device, rank());
    for (const std::string& text : services_.transport->Gather(FormatDouble(rate))) {
      rates.push_back(std::stod(text));
    }
  }
  const std::vector<double> speeds = RelativeSpeeds(rates);
  plan_.slowness = SlownessOf(plan_.topology, speeds);
  std::vector<int> cuts = plan_.bounds;
  const bool is_chosen = !plan_.slowness.empty() && plan_.costs && plan_.costs->has_seconds();
  if (rank() == 0 && is_chosen) {
    cuts = Rebalancer::CutsBeforeSteps(job_, plan_, &context_.script);
  }
  {
    const AtMeeting meeting(*services_.progress, kSpeeds);
    const Value chosen = Value::IntList({cuts.begin(), cuts.end()});
    const std::string text = services_.transport->Broadcast(chosen.ToJson(), 0);
    cuts.clear();
    for (const int64_t cut : Value::FromJson(text).as_ints()) cuts.push_back(static_cast<int>(cut));
  }
  if (cuts != plan_.bounds && CanMove()) {
    MoveTo(RecutPlan(job_, plan_, cuts, nullptr, &context_.script));
  }
  start_.notes.push_back(
      Str("ranks were timed: speed ", SpeedsText(speeds), "; cuts ", CutsText(plan_)));
}

RankEngine::~RankEngine() {
  services_.progress->Rest();
  services_.progress->set_tracer(nullptr);
}

void RankEngine::OpenCommLog() {
  comm_log_ = std::make_shared<CommLog>(
      job_.comm_log,
      [progress = services_.progress](const std::string& collective, const std::string& group,
                                      int64_t bytes, double seconds) {
        const int64_t end = FlightRing::Now();
        progress->flight().Add(Str(collective, " ", group), bytes,
                               end - static_cast<int64_t>(1e9 * seconds), end);
      });
  for (const GroupSpec& spec : GroupsOf(plan_)) {
    Group* group = services_.transport->FindGroup(spec.name);
    // On a device the log would wait for the end of every collective.
    if (group && (job_.comm_log || context_.device.is_cpu())) group->set_log(comm_log_);
  }
  if (job_.comm_log) logged_links_.emplace(*services_.transport, "pipe", comm_log_);
}

void RankEngine::OpenTracer() {
  tracer_.emplace([device = context_.device, account = context_.memory_account()] {
    return MemoryOn(device, account).current;
  });
  services_.progress->set_tracer(&*tracer_);
}

RankEngine::Components& RankEngine::components() {
  STRATA_CHECK(components_) << "the engine is closed";
  return *components_;
}

StepResult RankEngine::TrainStep(MicroBatches* batch) {
  Components& own = components();
  if (!batch && !own.train_data) {
    throw ConfigError("the job has no data.train, and no batch was given");
  }
  const std::optional<SaveReport> waited = own.saves.FinishSave(step_, skipped_);
  const auto start = Clock::now();
  services_.progress->BeginStep(step_);
  own.nonfinite_steps.Begin();
  const auto feed = FeedOfStep(batch);
  const bool is_drawn = job_.histograms > 0 && (step_ + 1) % job_.histograms == 0;
  const Totals& totals = own.runner.Train(*feed, {.step = step_,
                                                  .total_steps = total_steps(),
                                                  .requests = *services_.requests,
                                                  .record_gradients = record_gradients_,
                                                  .record_histograms = is_drawn,
                                                  .times_stages = times_stages_,
                                                  .recut = better_.has_value()});
  StepResult result = ResultOf(totals);
  result.save = waited;
  skipped_ += own.nonfinite_steps.End(
                  totals, [&] { return FeedOfStep(batch); }, step_, result)
                  ? 1
                  : 0;
  result.skipped = skipped_;
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (!result.is_taken) return result;
  ++step_;
  services_.progress->EndStep();
  const auto peak = static_cast<int64_t>(totals.peak_memory[static_cast<size_t>(rank())]);
  if (auto saved = own.saves.AfterStep(step_, skipped_, totals.save > 0, peak)) {
    result.save = std::move(saved);
  }
  result.owes_save = own.saves.owes();
  if (!times_stages_) return result;
  const MeasuredStep step = Measured(totals, plan_, result.seconds);
  if (window_) {
    result.measured = window_->Add(step);
    if (!result.measured && step_ == total_steps()) result.measured = window_->Rest();
  }
  if (result.measured && result.measured->is_disturbed()) result.measured.reset();
  if (result.measured) window_.reset();
  if (rebalances_) result.recut = Rebalance(totals, step);
  return result;
}

std::unique_ptr<Feed> RankEngine::FeedOfStep(MicroBatches* batch) {
  return batch ? FeedOf(*batch, context_.replica, context_.replicas)
               : components().train_data->Next(step_);
}

int64_t RankEngine::total_steps() const { return StepsOf(job_, steps_per_epoch_); }

StepResult RankEngine::ResultOf(const Totals& totals) const {
  StepResult result;
  result.step = step_;
  result.loss = totals.mean_loss();
  result.grad_norm = totals.grad_norm();
  result.lr = job_.optimizer.options["lr"].as_double() * totals.lr_factor;
  result.samples = std::llround(totals.samples);
  result.peak_memory = std::llround(std::ranges::max(totals.peak_memory));
  result.data_seconds = std::ranges::max(totals.data_seconds);
  if (context_.device.is_cpu()) {
    result.busy_seconds = totals.busy_seconds;
    result.idle_share = totals.idle_share();
  }
  result.gradients = components_->runner.gradients();
  result.histograms = components_->runner.histograms();
  result.stop = totals.stop > 0;
  const std::vector<std::string>& names = components_->runner.part_names();
  for (size_t i = 0; i < names.size(); ++i) {
    result.parts.emplace_back(names[i], totals.part_sum(i) / LossDivisor(totals.weight()));
  }
  if (!job_.losses) return result;
  for (size_t m = 0; m < totals.loss_sums.size(); ++m) {
    result.micro_batch_losses.push_back(totals.loss_sums[m] / LossDivisor(totals.weights[m]));
  }
  return result;
}

EvalResult RankEngine::EvalBatch(MicroBatches& batch, Outputs* outputs) {
  return components().evaluation.OfBatch(batch, outputs);
}

EvalResult RankEngine::EvaluateTestData() {
  EvalResult result = components().evaluation.OfTestData(services_.requests->stop);
  if (result.stop) return result;
  Value numbers = Value::MakeMap({{"test.loss", result.loss}});
  if (result.has_metric) numbers.Set(Str("test.", job_.eval.metric), result.metric);
  for (const auto& [name, value] : result.metrics.as_map()) {
    if (value.is_number()) numbers.Set(Str("test.", name), value);
  }
  Monitors::Verdict verdict = components().stages.monitors().Take(step_, numbers);
  result.is_best = verdict.is_best;
  result.why_stopped = std::move(verdict.why_stopped);
  return result;
}

void RankEngine::PredictBatch(MicroBatches& batch, Outputs& outputs) {
  components().evaluation.PredictBatch(batch, outputs);
}

std::optional<Predicted> RankEngine::PredictTestData(int64_t part) {
  return components().evaluation.Predict(part);
}

TextReport RankEngine::BeginTexts(const TextRequest& request) {
  return components().generation.Begin(request);
}

std::vector<NewToken> RankEngine::NextTokens() { return components().generation.Next(); }

SaveReport RankEngine::FinishSave() {
  std::optional<SaveReport> report = components().saves.FinishSave(step_, skipped_);
  STRATA_CHECK(report) << "no save is owed";
  return *std::move(report);
}

std::optional<SaveReport> RankEngine::WaitForSave() { return components().saves.Wait(); }

SaveReport RankEngine::SaveBest() { return components().saves.SaveBest(step_, skipped_); }

SaveReport RankEngine::Save() { return components().saves.SaveNow(step_, skipped_); }

RecutReport RankEngine::Recut(const std::vector<int>& cuts) {
  Plan next = RecutPlan(job_, plan_, cuts, nullptr, &context_.script);
  StayThere();
  return MoveTo(std::move(next));
}

/// Stops automatic moves of layers on all ranks.
void RankEngine::StayThere() {
  rebalances_ = false;
  rebalancer_.reset();
  better_.reset();
}

/// Moves to the plan `next`. The components see it through the context, which refers to plan_.
/// `before` keeps the old values and moments, but no gradients, in memory until they have been
/// moved.
RecutReport RankEngine::MoveTo(Plan next) {
  Components& own = components();
  const auto start = Clock::now();
  RecutReport report = {.step = step_, .cuts = next.bounds, .moves = MovesText(plan_, next)};
  const std::vector<StateTensor> before = own.saves.State();
  plan_ = std::move(next);
  {
    const AtWork at_work(*services_.progress, kRecuts);
    own.stages.Rebuild(kRecuts);
  }
  services_.programs = std::make_shared<ProvedPrograms>();
  own.runner.Rebuild(services_.programs);
  own.generation.End();
  report.bytes = own.saves.TakeOver(before, step_, skipped_);
  report.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (rebalancer_) rebalancer_->Moved(report.seconds);
  window_.reset();  // its readers expect the plan that the training began with
  better_.reset();
  return report;
}

/// Called after each step. Rank 0 searches for better cuts while the other ranks continue. If it
/// finds some, the Totals of the next step tell all ranks to move after that step. Nothing moves
/// after the last step.
std::optional<RecutReport> RankEngine::Rebalance(const Totals& totals, const MeasuredStep& step) {
  const int64_t total = total_steps(), left = total > 0 ? total - step_ : step_;
  if (totals.recut > 0 && totals.stop == 0 && left > 0) return MoveToBetterCuts();
  if (!rebalancer_ || better_) return std::nullopt;
  const auto start = Clock::now();
  better_ = rebalancer_->AfterStep(step, left);
  rebalancer_->AddSearchTime(std::chrono::duration<double>(Clock::now() - start).count());
  return std::nullopt;
}

/// True if the memory of every rank's machine suffices to hold the state twice.
bool RankEngine::CanMove() {
  const bool fits = components().saves.FitsTwice();
  const AtMeeting meeting(*services_.progress, kRecuts);
  if (services_.transport->AllReduceSum({fits ? 0.0 : 1.0})[0] == 0) return true;
  if (rank() == 0) {
    STRATA_LOG(kWarning) << "layers stay where they are, though others would be better: while "
                            "they move a rank has its state twice, for which there is too "
                            "little memory";
  }
  return false;
}

/// Moves to the cuts that rank 0 has found. Returns nullopt if the memory of some rank's machine
/// does not suffice to hold the state twice; then layers stay for good.
std::optional<RecutReport> RankEngine::MoveToBetterCuts() {
  if (!CanMove()) {
    StayThere();
    return std::nullopt;
  }
  std::string text;
  {
    const AtMeeting meeting(*services_.progress, kRecuts);
    text = services_.transport->Broadcast(better_ ? ToText(*better_) : "", 0);
  }
  const BetterCuts better = ParseBetterCuts(text, *plan_.costs);
  RecutReport report = MoveTo(RecutPlan(job_, plan_, better.cuts, better.costs, &context_.script));
  report.saving = better.saving;
  report.why = better.why;
  return report;
}

std::vector<TensorDigest> RankEngine::Parameters() {
  const AtMeeting meeting(*services_.progress, kDigests);
  return components().stages.parameters().Digests(ParameterTable::What::kValues,
                                                  *services_.transport);
}

void RankEngine::ReadTensor(const std::string& path, Kind kind, Outputs& outputs) {
  using What = ParameterTable::What;
  const AtMeeting meeting(*services_.progress, kTensors);
  const at::Tensor copy = components().stages.CopyTensor(
      path, kind == Kind::kGradient ? What::kGradients : What::kValues);
  if (copy.defined()) outputs.list = {{copy}};
}

/// A rank that waits for others needs no stack: its position says enough.
void RankEngine::Abort(const std::string& why) {
  if (services_.progress->computing()) NoteStacks();
  services_.transport->Abort(why);
}

void RankEngine::NoteStacks() { NoteStack(*services_.progress); }

std::string RankEngine::CommReport() {
  if (!job_.comm_log) return "";
  const AtMeeting meeting(*services_.progress, kReports);
  const std::vector<std::string> texts = services_.transport->Gather(ToJson(comm_log_->Records()));
  return rank() == 0 ? CommText(JoinRecords(texts)) : "";
}

schedule::Trace RankEngine::TakeTrace() {
  if (!tracer_) return {};
  const AtMeeting meeting(*services_.progress, kTraces);
  return GatherTrace(*tracer_, *services_.transport, job_.name);
}

void RankEngine::Close() {
  services_.watchdog = nullptr;
  services_.progress->Rest();  // its names belong to the components
  components_ = nullptr;
}

}  // namespace strata
