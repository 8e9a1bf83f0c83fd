#include "engine/runtime/rank_engine.h"

#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <iterator>
#include <thread>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/transports/cuda_library.h"
#include "engine/runtime/make_engine.h"
#include "engine/runtime/saves/beginning.h"
#include "engine/runtime/step/nonfinite.h"
#include "engine/runtime/update/model_axis.h"
#include "engine/runtime/update/reductions.h"
#include "engine/runtime/watch/gather_trace.h"
#include "engine/spec/job/lr_schedule.h"
#include "engine/spec/job/parameter_groups.h"
#include "engine/spec/layers/layers.h"
#include "engine/tensors/allocator.h"
#include "engine/tensors/threads.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

const Doing kStart = {-1, kStartAction};
const Doing kEvaluationTotals = {-1, "SUM_LOSSES"};
const Doing kTieCheck = {-1, "TIE_CHECK"};
const Doing kDigests = {-1, "DIGEST"};
const Doing kInputs = {-1, "READ_INPUTS"};
const Doing kLoads = {-1, "LOAD"};
const Doing kReports = {-1, "COMM_LOG"};
const Doing kSaves = {-1, "SAVE"};
const Doing kTraces = {-1, "TRACE"};
const Doing kExamines = {-1, "EXAMINE"};
const Doing kUpdates = {-1, "STEP"};

/// While one lives, the watchdog watches the rank. An exception that ends it leaves the position.
class AtWork {
 public:
  AtWork(Progress& progress, const Doing& doing) : progress_(progress) { progress_.Start(&doing); }
  ~AtWork() { std::uncaught_exceptions() > exceptions_ ? progress_.Fail() : progress_.Rest(); }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;

 private:
  Progress& progress_;
  const int exceptions_ = std::uncaught_exceptions();
};

int IndexOn(const Topology& topology, std::string_view axis, int rank) {
  return topology.Has(axis) ? topology.Index(rank, axis) : 0;
}

int SizeOf(const Topology& topology, std::string_view axis) {
  return std::max(1, topology.Size(axis));
}

void ShareCores(const Job& job, int local_ranks) {
  const int cores = static_cast<int>(std::thread::hardware_concurrency());
  SetThreads(job.threads > 0 ? job.threads : std::max(1, cores / local_ranks));
}

std::string NameOf(const DataSpec& data) {
  return data.kind == "function" ? data.function.where : data.kind;
}

/// Makes the rank's device the thread's own. Ranks that share a machine take its GPUs in turn.
at::Device TakeDevice(const Plan& plan, int local_rank) {
  if (plan.device != "cuda") return at::kCPU;
  const CudaLibrary& cuda = LoadCudaLibrary();
  const int index = local_rank % std::max(1, cuda.device_count());
  cuda.set_device(index);
  return at::Device(at::kCUDA, static_cast<at::DeviceIndex>(index));
}

}  // namespace

/// What an evaluation adds up over its runs.
struct RankEngine::EvalSums {
  double loss = 0, weight = 0, samples = 0, correct = 0, counted = 0;

  void Add(const Totals& totals) {
    for (const double sum : totals.loss_sums) loss += sum;
    weight += totals.weight();
    samples += totals.samples;
    correct += totals.correct;
    counted += totals.counted;
  }
};

RankEngine::RankEngine(Job job, Plan plan, EngineScript& script, RankServices services)
    : job_(std::move(job)),
      plan_(std::move(plan)),
      script_(script),
      services_(std::move(services)),
      current_(services_.transport.get()),
      group_of_replicas_(services_.transport->FindGroup("data")),
      pipe_ranks_(plan_.topology.CommList(kPipeAxis, services_.transport->rank())),
      pipe_rank_(plan_.topology.Index(services_.transport->rank(), kPipeAxis)),
      replica_(IndexOn(plan_.topology, kDataAxis, services_.transport->rank())),
      replicas_(SizeOf(plan_.topology, kDataAxis)),
      model_axis_(OpenModelAxis(*services_.transport, *services_.progress)),
      speaks_(!model_axis_ || model_axis_->rank() == 0),
      device_(at::kCPU),
      boundaries_(job_, plan_, script_),
      rows_(job_, plan_, script_, pipe_rank_),
      train_name_(NameOf(job_.train_data)),
      test_name_(NameOf(job_.test_data)),
      given_name_("the given micro-batches"),
      totals_(0, 0, 0) {
  STRATA_CHECK(replicas_ == 1 || group_of_replicas_) << "no group of the replicas was opened";
  STRATA_CHECK(SizeOf(plan_.topology, kModelAxis) == 1 || model_axis_) << "no group of the model";
  InstallAllocator();
  SetMemoryAccount(MemoryAccount());
  ShareCores(job_, services_.local_ranks);
  device_ = TakeDevice(plan_, services_.local_rank);
  if (job_.comm_log) OpenCommLog();
  if (!job_.trace.empty()) OpenTracer();
  BuildStages();
  OpenData();
  TakeStart();
}

RankEngine::~RankEngine() {
  services_.progress->Rest();
  services_.progress->set_tracer(nullptr);
}

void RankEngine::OpenCommLog() {
  comm_log_ = std::make_shared<CommLog>();
  for (const GroupSpec& spec : GroupsOf(plan_)) {
    Group* group = services_.transport->FindGroup(spec.name);
    if (group) group->set_log(comm_log_);
  }
  logged_links_.emplace(*services_.transport, "pipe", comm_log_);
}

void RankEngine::OpenTracer() {
  tracer_.emplace([account = MemoryAccount()] { return MemoryOf(account).current; });
  services_.progress->set_tracer(&*tracer_);
}

void RankEngine::BuildStages() {
  const auto group_of = [this](int layer, const std::string& parameter) {
    return FindParameterGroup(job_.optimizer, job_.layers, layer, parameter);
  };
  std::vector<PlacedParameter> own;
  for (const StagePlan& place : plan_.stages) {
    if (place.rank != pipe_rank_) continue;
    auto stage = std::make_unique<Stage>(
        BuildStage(job_, plan_, place.stage, device_, script_, model_axis_), group_of);
    ReleaseFreeMemory();  // of initial values, which lie in flat buffers now
    auto reducer = std::make_unique<GradientReducer>(place.stage, stage->parameters(),
                                                     group_of_replicas_, job_.zero == 1);
    auto optimizer = MakeOptimizer(job_.optimizer, reducer->updated());
    const auto& parameters = stage->parameters().parameters();
    stages_.push_back({std::move(stage), std::move(reducer), std::move(optimizer), own.size()});
    own.insert(own.end(), parameters.begin(), parameters.end());
  }
  services_.progress->set_stage(stages_.front().stage->number());
  const AtWork at_work(*services_.progress, kStart);
  services_.progress->WaitForAll();
  parameters_.emplace(std::move(own), speaks_ && replica_ == 0, model_axis_, *services_.transport);
  ties_.emplace(plan_, StagesByNumber(), pipe_ranks_, *services_.transport);
  Links& links = logged_links_ ? static_cast<Links&>(*logged_links_) : *services_.transport;
  executor_.emplace(links, StagesByNumber(), pipe_ranks_, *services_.progress);
  news_.emplace(links, rank(), plan_, pipe_ranks_, device_, *services_.progress);
}

void RankEngine::OpenData() {
  if (!job_.train_data.kind.empty()) {
    train_source_ = OpenSource(job_, job_.train_data, Batches(plan_.batch), script_);
  }
  if (!job_.test_data.kind.empty()) {
    test_source_ = OpenSource(job_, job_.test_data, Batches(EvaluationBatch()), script_);
  }
}

BatchOptions RankEngine::Batches(const Batch& batch) const {
  const bool has_first = plan_.stages.front().rank == pipe_rank_;
  const bool has_last = plan_.stages.back().rank == pipe_rank_;
  return {.batch = batch,
          .replica = replica_,
          .replicas = replicas_,
          .wants_both = has_first && has_last};
}

/// Evaluation runs with micro-batches of its own size, and with enough of them at a time to fill
/// the pipe; not all at once, since a fast first stage would pile up messages.
Batch RankEngine::EvaluationBatch() const {
  Batch batch;
  batch.micro_batch_size = job_.eval.batch > 0 ? job_.eval.batch : plan_.batch.micro_batch_size;
  batch.micro_batches =
      std::max<int64_t>(plan_.batch.micro_batches, 4 * static_cast<int64_t>(plan_.stages.size()));
  batch.size = batch.micro_batch_size * batch.micro_batches;
  return batch;
}

/// Where job.resume or job.weights say, in the folder of saves that nobody else writes to.
void RankEngine::TakeStart() {
  const AtWork at_work(*services_.progress, kLoads);
  if (!job_.save.dir.empty()) {
    saver_.emplace(job_.save, !job_.resume.empty(), *services_.transport, *services_.progress);
  }
  if (job_.resume.empty() && job_.weights.empty()) return;
  start_ = BeginTraining(job_, TrainingNow(), State(), *services_.transport, *services_.progress);
  step_ = start_.step;
  skipped_ = start_.skipped;
  for (OwnStage& own : stages_) own.optimizer->set_steps_done(step_ - skipped_);
}

StepResult RankEngine::TrainStep(MicroBatches* batch) {
  if (!batch && !train_source_) {
    throw ConfigError("the job has no data.train, and no batch was given");
  }
  const auto start = Clock::now();
  KeepState();
  RunStep(batch, nullptr);
  const bool is_finite = totals_.are_finite();
  StepResult result = ResultOfStep(0);
  if (!is_finite) OnNonFinite(batch, result);
  was_finite_ = is_finite;
  result.skipped = skipped_;
  result.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  if (!result.is_taken) return result;
  ++step_;
  result.save = SaveWhenDue();
  return result;
}

void RankEngine::RunStep(MicroBatches* batch, Examiner* examiner) {
  const auto feed = batch ? FeedOf(*batch, replica_, replicas_) : train_source_->Next(step_);
  run_ = {};
  run_.training = true;
  run_.first_micro_batch = (step_ * replicas_ + replica_) * plan_.batch.micro_batches;
  run_.examiner = examiner;
  Begin(*feed, batch ? given_name_ : train_name_);
  if (!examiner) CheckTies();
  RunRow(rows_.Training(run_.micro_batches()));
}

void RankEngine::CheckTies() {
  if (job_.tie_check == 0 || step_ % job_.tie_check != 0) return;
  const AtWork at_work(*services_.progress, kTieCheck);
  ties_->Check(*services_.progress);
}

EvalResult RankEngine::EvalBatch(MicroBatches& batch, Outputs* outputs) {
  EvalSums sums;
  const auto feed = FeedOf(batch, replica_, replicas_);
  // Replicas that are threads of this process write to one list, each to its own places; it has
  // this size already.
  if (outputs) outputs->list.resize(batch.list.size());
  Evaluate(*feed, given_name_, outputs, sums);
  return ResultOf(sums);
}

EvalResult RankEngine::EvaluateTestData() {
  if (!test_source_) throw ConfigError("the job has no data.test");
  EvalSums sums;
  for (int64_t run = 0; run < test_source_->runs_per_pass(); ++run) {
    Evaluate(*test_source_->Next(run), test_name_, nullptr, sums);
  }
  return ResultOf(sums);
}

int64_t RankEngine::steps_per_epoch() const {
  return train_source_ ? train_source_->runs_per_pass() : 0;
}

std::vector<TensorDigest> RankEngine::Parameters() {
  const AtWork at_work(*services_.progress, kDigests);
  services_.progress->WaitForAll();
  return parameters_->Digests(ParameterTable::What::kValues, *services_.transport);
}

std::string RankEngine::CommReport() {
  if (!comm_log_) return "";
  const AtWork at_work(*services_.progress, kReports);
  services_.progress->WaitForAll();
  const std::vector<std::string> texts = services_.transport->Gather(ToJson(comm_log_->Records()));
  return rank() == 0 ? CommText(JoinRecords(texts)) : "";
}

schedule::Trace RankEngine::TakeTrace() {
  if (!tracer_) return {};
  const AtWork at_work(*services_.progress, kTraces);
  services_.progress->WaitForAll();
  return GatherTrace(*tracer_, *services_.transport, job_.name);
}

void RankEngine::Close() {
  services_.watchdog = nullptr;
  saver_.reset();
  executor_.reset();
  stages_.clear();
}

// Steps that are not finite

void RankEngine::KeepState() {
  size_t next = 0;
  for (const OwnStage& own : stages_) {
    for (const StageLayer& layer : own.stage->layers()) {
      for (const LayerBuffer& buffer : layer.layer->buffers()) {
        if (next == kept_state_.size()) kept_state_.push_back(at::empty_like(buffer.value));
        kept_state_[next++].copy_(buffer.value);
      }
    }
  }
}

void RankEngine::TakeBackState() {
  size_t next = 0;
  for (const OwnStage& own : stages_) {
    for (const StageLayer& layer : own.stage->layers()) {
      for (LayerBuffer& buffer : layer.layer->buffers()) buffer.value.copy_(kept_state_[next++]);
    }
  }
}

bool RankEngine::has_finite_weights() const {
  return std::ranges::all_of(stages_, [](const OwnStage& own) {
    return std::ranges::all_of(own.stage->parameters().parameters(), &IsFinite,
                               &PlacedParameter::value);
  });
}

/// Collective: runs the step again. What it computed before stays: Totals, gradients, statistics.
NonFinite RankEngine::Examine(MicroBatches* batch) {
  const Totals totals = totals_;
  const auto of_all = static_cast<int64_t>(totals_.loss_sums.size());
  Examiner examiner(replica_ * of_all / replicas_);
  RunStep(batch, &examiner);
  totals_ = totals;
  const AtWork at_work(*services_.progress, kExamines);
  services_.progress->WaitForAll();
  NonFinite found =
      FirstOf(services_.transport->Gather(ToText(examiner.first(), has_finite_weights())));
  found.report = Str("the loss is ", NumberText(totals_.mean_loss()), ", the norm of its gradient ",
                     NumberText(totals_.grad_norm()), ": ", found.report);
  return found;
}

/// With "warn" only the first of several such steps is examined: those after it have its weights.
void RankEngine::OnNonFinite(MicroBatches* batch, StepResult& result) {
  const bool counts = job_.nonfinite == "warn";
  result.nonfinite = counts && !was_finite_ ? NonFinite() : Examine(batch);
  std::string& report = result.nonfinite->report;
  if (counts) {
    if (!report.empty()) report = Str("step ", step_ + 1, " counts although ", report);
    const AtWork at_work(*services_.progress, kUpdates);
    return UpdateStages();
  }
  TakeBackState();
  result.is_taken = job_.nonfinite == "skip" && result.nonfinite->has_finite_weights;
  report =
      Str("step ", step_ + 1, result.is_taken ? " was left out: " : " was not taken: ", report);
  skipped_ += result.is_taken ? 1 : 0;
}

// Saves

TrainingState RankEngine::TrainingNow() const {
  TrainingState training;
  training.step = step_;
  training.skipped = skipped_;
  training.micro_batches = plan_.batch.micro_batches * replicas_;
  training.micro_batch_size = plan_.batch.micro_batch_size;
  training.seed = job_.seed;
  training.optimizer = job_.optimizer.type;
  training.job_name = job_.name;
  training.job = job_.ToValue();
  training.job_digest = Digest(training.job.ToJson());
  return training;
}

std::vector<StateTensor> RankEngine::State() {
  const TiePaths ties = TiePathsOf(job_.layers);
  std::vector<StateTensor> state;
  for (OwnStage& own : stages_) {
    std::vector<StateTensor> tensors = StateOf(*own.stage, *own.optimizer, ties, model_axis_.get());
    std::ranges::move(tensors, std::back_inserter(state));
  }
  return state;
}

/// Replicas have the same state, of which one writes all; but with ZeRO-1 each has its own part of
/// the moments. The ranks of the model axis write what they share, and one of them the rest. Of
/// tied tensors only the first use is written.
void RankEngine::StartSave() {
  const bool shares_moments = job_.zero == 1 && replicas_ > 1;
  std::vector<StateTensor> state = State();
  std::erase_if(state, [&](const StateTensor& tensor) {
    const bool own_part = shares_moments && tensor.kind == TensorKind::kMoment;
    const bool of_replica = replica_ == 0 || own_part;
    const bool of_axis = speaks_ || tensor.is_shared();
    return tensor.is_copy || !of_replica || !of_axis;
  });
  saver_->Start(TrainingNow(), state);
}

/// After a step: looks how the save that goes on fares, and begins the next one when its time has
/// come. That one waits for the former.
std::optional<SaveReport> RankEngine::SaveWhenDue() {
  if (!saver_) return std::nullopt;
  const bool is_due = job_.save.every > 0 && step_ % job_.save.every == 0;
  if (!is_due && !saver_->pending()) return std::nullopt;
  const AtWork at_work(*services_.progress, kSaves);
  services_.progress->WaitForAll();
  std::optional<SaveReport> report;
  if (saver_->pending()) report = is_due ? saver_->Finish() : saver_->Poll();
  if (report) last_save_ = *report;
  if (is_due) StartSave();
  return report;
}

SaveReport RankEngine::Save() {
  STRATA_CHECK(saver_) << "the job has no save.dir";
  const AtWork at_work(*services_.progress, kSaves);
  const bool is_this_step = saver_->step() == step_;
  if (saver_->pending()) {
    last_save_ = saver_->Finish();
  }
  if (!is_this_step || !last_save_.error.empty()) {
    StartSave();
    last_save_ = saver_->Finish();
  }
  if (last_save_.error.empty()) return last_save_;
  throw WorldError(Str("the save of step ", step_, " failed: ", last_save_.error));
}

// One run

void RankEngine::Begin(Feed& feed, const std::string& source) {
  feed_ = &feed;
  source_ = &source;
  if (feed.inputs().empty()) {
    const AtWork at_work(*services_.progress, kInputs);
    feed.set_inputs(news_->Share([&] {
      services_.progress->ReadData(source_);
      return feed.ReadInputs();
    }));
  }
  boundaries_.Forget();
  for (size_t m = 0; m < feed.inputs().size(); ++m) run_.boundaries.push_back(&BoundariesOf(m));
  totals_ = EmptyTotals();
}

const Boundaries& RankEngine::BoundariesOf(size_t m) {
  const std::vector<TensorSpecs>& inputs = feed_->inputs();
  if (m > 0 && inputs[m] == inputs[m - 1]) return *run_.boundaries.back();
  try {
    return boundaries_.Of(inputs[m]);
  } catch (const ConfigError& error) {
    throw ConfigError(Str("micro-batch ", m, " from ", *source_, ": ", error.what()));
  }
}

void RankEngine::RunRow(const Row& row) {
  STRATA_CHECK(executor_) << "the engine is closed";
  const AtWork at_work(*services_.progress, row.instructions.front().doing);
  if (tracer_ && run_.training && !run_.examiner) tracer_->Record(step_, row.instructions.size());
  executor_->Run(row, run_, *this);
  if (tracer_) tracer_->Pause();
}

void RankEngine::SumLosses() {
  const AtWork at_work(*services_.progress, kEvaluationTotals);
  services_.progress->WaitForAll();
  TakeLosses();
  totals_.AllReduce(*services_.transport);
}

void RankEngine::Evaluate(Feed& feed, const std::string& source, Outputs* outputs, EvalSums& sums) {
  run_ = {};
  run_.training = false;
  run_.keep_outputs = outputs != nullptr;
  run_.count_hits = job_.eval.metric == "accuracy";
  Begin(feed, source);
  if (run_.micro_batches() > 0) RunRow(rows_.Evaluation(run_.micro_batches()));
  SumLosses();
  sums.Add(totals_);
  const Stage* last = LastStage();
  if (!outputs || !last || !speaks_) return;
  const int first = replica_ * feed.most();
  for (int m = 0; m < run_.micro_batches(); ++m) outputs->list[first + m] = last->output(m);
}

Tensors RankEngine::Input(int m) { return feed_->Input(m); }

Tensors RankEngine::Target(int m) { return feed_->Target(m); }

void RankEngine::ReduceTies() { ties_->Reduce(*services_.progress); }

void RankEngine::OnGradients(Stage& stage) {
  const OwnStage& own = Own(stage);
  if (model_axis_) SumPartialGradients(stage.parameters(), *model_axis_);
  own.reducer->Start();
  if (!group_of_replicas_) TakeSquares(own);
}

/// Of what this replica looks after; each parameter is counted once, by one rank or by several.
void RankEngine::TakeSquares(const OwnStage& own) {
  for (const ParameterShare& share : own.reducer->shares()) {
    const int64_t place = parameters_->first_chunk(own.first_parameter + share.parameter);
    if (place < 0) continue;
    const int64_t first = place + share.begin / kSquareChunk;
    ChunkSquares(share.gradient,
                 std::span(totals_.squares).subspan(first, SquareChunks(share.gradient.numel())));
  }
}

/// The sums over the replicas, which are on their way since REDUCE_GRAD.
void RankEngine::FinishGradients() {
  if (!group_of_replicas_) return;
  for (const OwnStage& own : stages_) {
    own.reducer->Await(*services_.progress);
    TakeSquares(own);
    if (!run_.examiner) own.reducer->AverageState(*services_.progress);
  }
}

void RankEngine::Step() {
  FinishGradients();
  if (run_.examiner) return;
  TakeLosses();
  TakePeakMemory();
  totals_.lr_factor = rank() == 0 ? LrFactorOfStep() : 0;
  totals_.stop = *services_.stop ? 1 : 0;
  services_.progress->WaitForAll();
  totals_.AllReduce(*services_.transport);
  gradients_.clear();
  if (record_gradients_) {
    for (const OwnStage& own : stages_) own.reducer->GatherGradients(*services_.progress);
    services_.progress->WaitForAll();
    gradients_ = parameters_->Digests(ParameterTable::What::kGradients, *services_.transport);
    for (TensorDigest& gradient : gradients_) gradient.norm /= LossDivisor(totals_.weight());
  }
  services_.progress->Compute();
  if (totals_.are_finite()) UpdateStages();
}

void RankEngine::UpdateStages() {
  const double divisor = LossDivisor(totals_.weight()) / ClipFactor(job_.clip, totals_.grad_norm());
  for (const OwnStage& own : stages_) own.optimizer->Step(totals_.lr_factor, divisor);
  for (const OwnStage& own : stages_) own.reducer->GatherValues(*services_.progress);
}

void RankEngine::TakeLosses() {
  const Stage* last = LastStage();
  if (!last || !speaks_) return;
  const int first = replica_ * feed_->most();
  for (int m = 0; m < run_.micro_batches(); ++m) {
    const LossValue& loss = last->loss(m);
    totals_.loss_sums[first + m] = loss.sum.item<double>();
    totals_.weights[first + m] = loss.weight;
    totals_.samples += static_cast<double>(feed_->rows(m));
    totals_.correct += static_cast<double>(last->hits(m).correct);
    totals_.counted += static_cast<double>(last->hits(m).counted);
  }
}

int RankEngine::MemoryAccount() const { return rank() % kMemoryAccounts; }

void RankEngine::TakePeakMemory() {
  totals_.peak_memory[rank()] = static_cast<double>(MemoryOf(MemoryAccount()).peak);
  ResetPeakMemory(MemoryAccount());
}

double RankEngine::LrFactorOfStep() {
  const int64_t total = job_.steps > 0 ? job_.steps
                                       : static_cast<int64_t>(std::llround(
                                             job_.epochs * static_cast<double>(steps_per_epoch())));
  return LrFactor(job_.lr_schedule, step_, total, &script_);
}

Totals RankEngine::EmptyTotals() const {
  return Totals(feed_->most() * replicas_, run_.training ? parameters_->chunks() : 0,
                services_.transport->world_size());
}

// Results

StepResult RankEngine::ResultOfStep(double seconds) const {
  StepResult result;
  result.step = step_;
  result.loss = totals_.mean_loss();
  result.grad_norm = totals_.grad_norm();
  result.lr = job_.optimizer.options["lr"].as_double() * totals_.lr_factor;
  result.samples = std::llround(totals_.samples);
  result.seconds = seconds;
  result.peak_memory = std::llround(std::ranges::max(totals_.peak_memory));
  result.gradients = gradients_;
  result.stop = totals_.stop > 0;
  if (job_.losses) {
    for (size_t m = 0; m < totals_.loss_sums.size(); ++m) {
      result.micro_batch_losses.push_back(totals_.loss_sums[m] / LossDivisor(totals_.weights[m]));
    }
  }
  return result;
}

EvalResult RankEngine::ResultOf(const EvalSums& sums) const {
  EvalResult result;
  result.loss = sums.loss / LossDivisor(sums.weight);
  result.samples = std::llround(sums.samples);
  result.has_metric = sums.counted > 0;
  if (result.has_metric) result.metric = sums.correct / sums.counted;
  return result;
}

// Stages

std::vector<Stage*> RankEngine::StagesByNumber() const {
  std::vector<Stage*> stages(plan_.stages.size());
  for (const OwnStage& own : stages_) stages[own.stage->number()] = own.stage.get();
  return stages;
}

RankEngine::OwnStage& RankEngine::Own(const Stage& stage) {
  const auto own =
      std::ranges::find(stages_, &stage, [](const OwnStage& o) { return o.stage.get(); });
  STRATA_CHECK(own != stages_.end()) << "stage " << stage.number();
  return *own;
}

Stage* RankEngine::LastStage() const {
  const bool here = !stages_.empty() && stages_.back().stage->is_last();
  return here ? stages_.back().stage.get() : nullptr;
}

}  // namespace strata
