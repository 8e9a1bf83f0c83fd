// Which tensors this rank writes, and after which steps.
#include "engine/runtime/saves/rank_saves.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <limits>
#include <string_view>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/runtime/saves/beginning.h"
#include "engine/runtime/saves/move_state.h"

namespace strata {
namespace {

const Doing kLoads = {-1, "LOAD"};
const Doing kMoves = {-1, "MOVE_LAYERS"};
const Doing kSaves = {-1, "SAVE"};

/// Bytes of this machine that processes may still take; all there are where it does not say.
int64_t AvailableMemory() {
  std::ifstream file("/proc/meminfo");
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view kName = "MemAvailable:";
    if (line.starts_with(kName)) return 1024 * std::atoll(line.c_str() + kName.size());
  }
  return std::numeric_limits<int64_t>::max();
}

}  // namespace

RankSaves::RankSaves(const RankContext& context, RankStages& stages)
    : context_(context), stages_(stages) {
  const Job& job = context.job;
  const AtWork at_work(context.progress, kLoads);
  if (!job.save.dir.empty()) {
    saver_.emplace(job.save, !job.resume.empty(), context.transport, context.progress);
  }
  if (!job.save.best.monitor.empty()) {
    best_.emplace(SaveSpec{.dir = job.save.dir + "/best", .keep = 1}, !job.resume.empty(),
                  context.transport, context.progress);
  }
  if (job.resume.empty() && job.weights.from.empty()) return;
  start_ = BeginTraining(job, TrainingAt(0, 0), State(), context.script, context.transport,
                         context.progress);
  if (!start_.loss_scale.is_null()) stages_.loss_scale().set_state(start_.loss_scale);
  if (!start_.monitors.is_null()) stages_.monitors().set_state(start_.monitors);
  start_.owes_evaluation = stages_.monitors().owes(start_.step);
  SetStepsDone(start_.step - start_.skipped);
}

void RankSaves::SetStepsDone(int64_t steps) {
  for (const OwnStage& own : stages_.own()) own.optimizer->set_steps_done(steps);
}

int64_t RankSaves::TakeOver(const std::vector<StateTensor>& before, int64_t step, int64_t skipped) {
  const AtMeeting meeting(context_.progress, kMoves);
  const auto replica = [this](int rank) {
    const Topology& topology = context_.plan.topology;
    return std::pair(topology.Index(rank, kDataAxis), topology.Index(rank, kModelAxis));
  };
  const int64_t bytes = MoveState(
      before, State(), [&](int a, int b) { return replica(a) == replica(b); }, context_.transport);
  SetStepsDone(step - skipped);
  return bytes;
}

bool RankSaves::FitsTwice(int local_ranks) const {
  int64_t bytes = 0;
  for (const StateTensor& tensor : State()) {
    if (!tensor.is_copy) bytes += static_cast<int64_t>(tensor.memory.nbytes());
  }
  return bytes * local_ranks <= AvailableMemory();
}

std::optional<SaveReport> RankSaves::AfterStep(int64_t step, int64_t skipped, bool asked) {
  if (!saver_) return std::nullopt;
  const int64_t every = context_.job.save.every;
  const bool is_due = asked || (every > 0 && step % every == 0);
  if (!is_due && !saver_->pending()) return std::nullopt;
  const AtMeeting meeting(context_.progress, kSaves);
  std::optional<SaveReport> report;
  if (saver_->pending()) report = is_due ? saver_->Finish() : saver_->Poll();
  if (report) last_ = *report;
  if (is_due) Start(*saver_, step, skipped);
  return report;
}

SaveReport RankSaves::SaveNow(int64_t step, int64_t skipped) {
  STRATA_CHECK(saver_) << "the job has no save.dir";
  const AtWork at_work(context_.progress, kSaves);
  const bool is_this_step = saver_->step() == step;
  if (saver_->pending()) last_ = saver_->Finish();
  if (!is_this_step || !last_.error.empty()) {
    Start(*saver_, step, skipped);
    last_ = saver_->Finish();
  }
  if (last_.error.empty()) return last_;
  throw WorldError(Str("the save of step ", step, " failed: ", last_.error));
}

SaveReport RankSaves::SaveBest(int64_t step, int64_t skipped) {
  STRATA_CHECK(best_) << "the job has no save.best";
  const AtWork at_work(context_.progress, kSaves);
  Start(*best_, step, skipped);
  return best_->Finish();
}

/// Replicas have the same state, of which one writes all; but with ZeRO-1 each has its own part of
/// the moments. The ranks of the model axis write what they share, and one of them the rest. Of
/// tied tensors only the first use is written. Ranks copy more and less: they meet behind it, where
/// the hang limit is the long one, and none waits in a row for another that still copies.
void RankSaves::Start(Saver& saver, int64_t step, int64_t skipped) {
  const bool shares_moments = context_.job.zero == 1 && context_.replicas > 1;
  std::vector<StateTensor> state = State();
  std::erase_if(state, [&](const StateTensor& tensor) {
    const bool own_part = shares_moments && tensor.kind == TensorKind::kMoment;
    const bool of_replica = context_.replica == 0 || own_part;
    const bool of_axis = context_.speaks_for_axis() || tensor.is_shared();
    return tensor.is_copy || !of_replica || !of_axis;
  });
  saver.Start(TrainingAt(step, skipped), state);
  context_.progress.WaitForAll();
  context_.transport.AllReduceSum({0.0});
}

TrainingState RankSaves::TrainingAt(int64_t step, int64_t skipped) const {
  const Job& job = context_.job;
  TrainingState training;
  training.step = step;
  training.skipped = skipped;
  if (job.precision.loss_scale.dynamic) training.loss_scale = stages_.loss_scale().state();
  training.monitors = stages_.monitors().state();
  training.micro_batches = context_.plan.batch.micro_batches * context_.replicas;
  training.micro_batch_size = context_.plan.batch.micro_batch_size;
  training.seed = job.seed;
  training.optimizer = job.optimizer.type;
  const Plan& plan = context_.plan;
  training.plan.Set("pipe", plan.pipe()).Set("schedule", plan.schedule);
  training.plan.Set("cuts", Value::IntList({plan.bounds.begin(), plan.bounds.end()}));
  training.job_name = job.name;
  training.job = job.ToValue();
  training.job_digest = Digest(training.job.ToJson());
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
