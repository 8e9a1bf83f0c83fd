// Decides which tensors this rank writes and after which steps, and loads what the training starts
// from. Saves of job.save.every are written from a copy while the training continues, if every rank
// has memory for its copy (StartBeside); otherwise the training waits (FinishSave). The last save
// and the best save are always written without a copy.
#include "engine/runtime/saves/rank_saves.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/machine/memory.h"
#include "engine/base/text.h"
#include "engine/runtime/saves/beginning.h"
#include "engine/runtime/saves/load_weights.h"
#include "engine/runtime/saves/move_state.h"
#include "engine/runtime/saves/resumable.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

const Doing kLoads = {-1, "LOAD"};
const Doing kMoves = {-1, "MOVE_LAYERS"};
const Doing kSaves = {-1, "SAVE"};

int64_t BytesOf(const std::vector<StateTensor>& state) {
  int64_t bytes = 0;
  for (const StateTensor& tensor : state) bytes += tensor.bytes();
  return bytes;
}

/// True if the training resumes from a save in save.dir; then it may replace the saves there.
bool GoesOnThere(const Job& job) {
  if (job.resume.empty() || job.resume == kLatestSave) return !job.resume.empty();
  const auto resume = fs::weakly_canonical(job.resume);
  const auto folder = fs::weakly_canonical(job.save.dir);
  return std::ranges::mismatch(folder, resume).in1 == folder.end();
}

}  // namespace

RankSaves::RankSaves(const RankContext& context, RankStages& stages, int local_ranks,
                     int64_t steps_per_epoch)
    : context_(context),
      stages_(stages),
      local_ranks_(local_ranks),
      every_(EverySteps(context.job.save.every, steps_per_epoch)) {
  const Job& job = context.job;
  const AtWork at_work(context.progress, kLoads);
  if (!job.save.dir.empty()) {
    saver_.emplace(job.save, GoesOnThere(job), context.transport, context.progress);
  }
  if (!job.save.best.monitor.empty()) {
    best_.emplace(SaveSpec{.dir = BestFolder(job.save.dir), .keep = 1}, GoesOnThere(job),
                  context.transport, context.progress);
  }
  if (job.resume.empty() && job.weights.from.empty() && !job.adapt.is_on()) return;
  Begun begun = BeginTraining(job, TrainingAt(0, 0), State(), OwnTensors(/*of_base=*/true),
                              context.script, context.transport, context.progress);
  start_ = std::move(begun.report);
  base_ = std::move(begun.base);
  began_ = std::move(begun.began);
  if (!start_.loss_scale.is_null()) stages_.loss_scale().set_state(start_.loss_scale);
  if (!start_.monitors.is_null()) {
    std::ranges::move(stages_.monitors().set_state(start_.monitors),
                      std::back_inserter(start_.notes));
  }
  if (!job.resume.empty() && best_) FindBest();
  start_.owes_evaluation = stages_.monitors().owes(start_.step, steps_per_epoch);
  start_.why_over = stages_.monitors().WhyStopped(start_.step);
  SetStepsDone(start_.step - start_.skipped);
  if (start_.step > 0) return;
  // Evaluations use these averages. The first training step starts averages of its own.
  took_averages_ =
      LoadAverages(job, State(), context.script, context.progress, [this] { BeginAverages(); });
}

/// Finds the best save in the folder, which may be newer than the save from which this training
/// resumes, if the evaluation that was the best came after it. The best save stays until an
/// evaluation is better, also if the training resumes from an earlier step.
void RankSaves::FindBest() {
  Value found;
  const std::string folder = BestFolder(context_.job.save.dir);
  if (context_.rank() == 0 && !ListSaves(folder).empty()) {
    try {
      const TrainingState best = Checkpoint::Open(folder)->manifest().training;
      found.Set("step", best.step).Set("monitors", best.monitors);
    } catch (const WorldError& error) {
      STRATA_LOG(kWarning) << error.what();
    }
  }
  found = Value::FromJson(context_.transport.Broadcast(found.ToJson(), 0));
  if (found.is_null()) return;
  // If the best save is of a later step, all evaluations from now on are compared with it.
  const int64_t step = found["step"].as_int();
  stages_.monitors().FindBest(step > start_.step ? start_.step - 1 : step, found["monitors"]);
}

void RankSaves::BeginAverages() {
  for (const OwnStage& own : stages_.own()) own.optimizer->BeginAverages();
}

void RankSaves::SetStepsDone(int64_t steps) {
  const TiePaths ties = TiePathsOf(context_.job.layers);
  for (const OwnStage& own : stages_.own()) {
    std::map<std::string, int64_t> began;
    for (const PlacedParameter& parameter : own.stage->parameters().parameters()) {
      const auto found = began_.find(SavedName(parameter, ties));
      if (found != began_.end()) began[parameter.path] = found->second;
    }
    own.optimizer->set_steps_done(steps, began);
  }
}

int64_t RankSaves::TakeOver(const std::vector<StateTensor>& before, int64_t step, int64_t skipped) {
  const AtMeeting meeting(context_.progress, kMoves);
  const auto replica = [this](int rank) {
    const Topology& topology = context_.plan.topology;
    return std::pair(topology.Index(rank, kDataAxis), topology.Index(rank, kModelAxis));
  };
  if (took_averages_) BeginAverages();
  const int64_t bytes = MoveState(
      before, State(), [&](int a, int b) { return replica(a) == replica(b); }, context_.transport);
  SetStepsDone(step - skipped);
  return bytes;
}

/// Implements HasRoom(). On an accelerator the job's limit is for the accelerator's memory, so it
/// does not apply to copies on the host.
bool RankSaves::HasRoom(int64_t bytes, int64_t beside) const {
  const int pipe = context_.plan.topology.Index(context_.rank(), kPipeAxis);
  const int64_t limit = context_.device.is_cpu() ? context_.plan.MemoryOf(pipe) : 0;
  if (limit > 0 && beside + bytes > limit) return false;
  return bytes * local_ranks_ <= ReadMachineMemory().available;
}

bool RankSaves::FitsTwice() const {
  std::vector<StateTensor> state = State();
  std::erase_if(state, [](const StateTensor& tensor) { return tensor.is_copy; });
  return HasRoom(BytesOf(state), MemoryOf(context_.memory_account()).current);
}

std::optional<SaveReport> RankSaves::AfterStep(int64_t step, int64_t skipped, bool asked,
                                               int64_t peak_memory) {
  if (!saver_) return std::nullopt;
  peak_memory_ = saver_->pending() ? std::max(peak_memory_, peak_memory - copied_) : peak_memory;
  const bool is_due = asked || (every_ > 0 && step % every_ == 0);
  if (!is_due && !saver_->pending()) return std::nullopt;
  const AtMeeting meeting(context_.progress, kSaves);
  std::optional<SaveReport> report;
  if (saver_->pending()) report = is_due ? saver_->Finish() : saver_->Poll();
  if (report) last_ = *report;
  if (is_due) owes_ = !StartBeside(step, skipped);
  return report;
}

std::optional<SaveReport> RankSaves::FinishSave(int64_t step, int64_t skipped) {
  if (!std::exchange(owes_, false)) return std::nullopt;
  const AtWork at_work(context_.progress, kSaves);
  return last_ = SaveAndWait(*saver_, step, skipped);
}

std::optional<SaveReport> RankSaves::Wait() {
  if (!saver_ || !saver_->pending()) return std::nullopt;
  const AtWork at_work(context_.progress, kSaves);
  return last_ = saver_->Finish();
}

SaveReport RankSaves::SaveAndWait(Saver& saver, int64_t step, int64_t skipped) {
  saver.Start(TrainingAt(step, skipped), OwnState(), /*copies=*/false);
  return saver.Finish();
}

SaveReport RankSaves::SaveNow(int64_t step, int64_t skipped) {
  STRATA_CHECK(saver_) << "the job has no save.dir";
  const AtWork at_work(context_.progress, kSaves);
  const bool is_this_step = saver_->step() == step;
  owes_ = false;
  if (saver_->pending()) last_ = saver_->Finish();
  if (!is_this_step || !last_.error.empty()) last_ = SaveAndWait(*saver_, step, skipped);
  if (last_.error.empty()) return last_;
  throw WorldError(Str("the save of step ", step, " failed: ", last_.error));
}

SaveReport RankSaves::SaveBest(int64_t step, int64_t skipped) {
  STRATA_CHECK(best_) << "the job has no save.best";
  const AtWork at_work(context_.progress, kSaves);
  SaveReport report = SaveAndWait(*best_, step, skipped);
  report.is_best = true;
  if (!report.error.empty()) stages_.monitors().BestFailed();
  return report;
}

/// Collective. Starts a save in the background if every rank has memory for a copy. All ranks check
/// before any of them copies, because copies use the memory that others check. After the copies the
/// ranks meet, since some have more to copy than others: while they wait here the longer limit for
/// hangs applies, and none waits in its row for a rank that is still copying.
bool RankSaves::StartBeside(int64_t step, int64_t skipped) {
  const std::vector<StateTensor> state = OwnState();
  const int64_t bytes = BytesOf(state);
  // Tensors on an accelerator are copied to the host in any case.
  const bool has_room = !context_.device.is_cpu() || HasRoom(bytes, peak_memory_);
  const bool copies = context_.transport.AllReduceSum({has_room ? 0.0 : 1.0})[0] == 0;
  copied_ = copies ? bytes : 0;
  if (copies) {
    saver_->Start(TrainingAt(step, skipped), state, copies);
    context_.progress.WaitForAll();
    context_.transport.Barrier();
    return true;
  }
  if (!has_told_ && context_.rank() == 0) {
    STRATA_LOG(kWarning) << "the training waits while a save is written: a rank has too little "
                            "memory for a copy of what it saves";
  }
  has_told_ = true;
  return false;
}

/// Selects the tensors that this rank writes. Replicas have equal state, so one of them writes it;
/// with ZeRO each writes its own part of the moments. The ranks of the model axis each write
/// their parts of divided tensors; one of them writes the others. Of tied tensors only the first
/// use is written.
std::vector<StateTensor> RankSaves::OwnState() const { return OwnTensors(/*of_base=*/false); }

std::vector<StateTensor> RankSaves::OwnTensors(bool of_base) const {
  const bool shares_moments = context_.job.zero > 0 && context_.replicas > 1;
  std::vector<StateTensor> state = State();
  std::erase_if(state, [&](const StateTensor& tensor) {
    const bool own_part = shares_moments && tensor.kind == TensorKind::kMoment;
    const bool of_replica = context_.replica == 0 || own_part;
    const bool of_axis = context_.speaks_for_axis() || tensor.is_shared();
    const bool is_of_base = context_.job.adapt.IsBase(tensor.name);
    return tensor.is_copy || !of_replica || !of_axis || is_of_base != of_base;
  });
  return state;
}

TrainingState RankSaves::TrainingAt(int64_t step, int64_t skipped) const {
  TrainingState training = TrainingOf(context_.job, context_.plan);
  training.step = step;
  training.skipped = skipped;
  training.began = began_;
  training.base = base_;
  if (context_.job.precision.loss_scale.dynamic) {
    training.loss_scale = stages_.loss_scale().state();
  }
  training.monitors = stages_.monitors().state();
  return training;
}

std::vector<StateTensor> RankSaves::State() const {
  const TiePaths ties = TiePathsOf(context_.job.layers);
  std::vector<StateTensor> state;
  for (const OwnStage& own : stages_.own()) {
    std::vector<StateTensor> tensors =
        StateOf(*own.stage, *own.optimizer, ties, context_.model_axis.get());
    std::ranges::move(tensors, std::back_inserter(state));
  }
  return state;
}

}  // namespace strata
