#include "engine/forecast/memory_forecast.h"

#include <algorithm>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/outstanding_sends.h"
#include "engine/base/size_class.h"
#include "engine/layers/layer_types.h"
#include "engine/plan/language_model.h"
#include "engine/schedule/lifetimes.h"

namespace strata {
namespace {

using schedule::Kind;
using schedule::Passage;
using schedule::Program;
using schedule::Step;

/// Follows one rank through its row of the program and keeps the sum of the bytes that are alive:
/// activations that are kept, tensors that pass from action to action, and messages. The highest
/// sum is the peak. Takes time proportional to the number of actions.
///
/// Messages: a receive is posted as soon as a slot for it is free (schedule::StageBuffers), and has
/// its memory from then on. A slot is free again when its micro-batch is done. So as many are held
/// as there are slots, and in the end as there are micro-batches left.
class RowMemory {
 public:
  RowMemory(const Program& program, const std::vector<StageCost>& stages,
            const std::vector<int>& slots, int rank)
      : program_(program),
        stages_(stages),
        held_(stages.size()),
        inputs_(stages.size()),
        output_gradients_(stages.size()) {
    for (const int s : schedule::StagesOfRank(program, rank)) {
      AddStage(s, std::min(slots[s], program.micro_batches));
    }
    Reach(0);
  }

  void Do(const Step& step) {
    const Kind kind = step.part.kind;
    const auto s = static_cast<size_t>(step.stage());
    const StageCost& stage = stages_[s];
    const bool is_forward = kind == Kind::kForward;
    if (kind == Kind::kRecompute) Reach(stage.recompute_peak - stage.kept_bytes);
    if (is_forward && step.takes() == Passage::kLocal) passing_ -= stage.input_bytes;
    if (schedule::GivesInputGrad(kind)) Reach(BackwardPeak(step));
    kept_ += step.Change(held_[s]);
    if (is_forward) Reach(stage.forward_peak - stage.kept_bytes);
    if (schedule::GivesWeightGrad(kind)) inputs_[s].Release(links_);
    if (schedule::GivesInputGrad(kind)) output_gradients_[s].Release(links_);
    if (is_forward && step.gives() == Passage::kLocal) passing_ += stages_[s + 1].input_bytes;
    if (step.gives() == Passage::kAfar) {
      if (!is_forward) Send(gradients_sent_, stage.input_bytes);
      if (is_forward && !stage.keeps_output) Send(outputs_sent_, stage.output_bytes);
    }
  }

  RowPeak peak() const { return {highest_activations_, highest_ - highest_activations_}; }

 private:
  /// The buffers of the messages of one kind that a stage receives.
  struct Received {
    int64_t bytes = 0;  ///< of each
    int to_post = 0;    ///< receives that are not posted yet

    /// A buffer is free: the next receive takes its place, if there is one.
    void Release(int64_t& links) {
      if (to_post-- <= 0) links -= bytes;
    }
  };

  /// Adds the buffers of stage `s`. The input of a micro-batch that arrives counts as a link buffer
  /// and not as kept.
  void AddStage(int s, int posted) {
    const StageCost& stage = stages_[s];
    const bool from_afar = s > 0 && program_.crosses_after(s - 1);
    const int64_t arrived = from_afar ? stage.input_bytes : 0;
    const int64_t returned = program_.crosses_after(s) ? stage.output_bytes : 0;
    inputs_[s] = {arrived, program_.micro_batches - posted};
    output_gradients_[s] = {returned, program_.micro_batches - posted};
    links_ += posted * (arrived + returned);
    held_[s] = {.kept = stage.kept_bytes - arrived,
                .recomputed = stage.recomputed_bytes,
                .deferred = stage.deferred_bytes - arrived};
  }

  /// The bytes of I or B beyond what is held anyway.
  int64_t BackwardPeak(const Step& step) const {
    const StageCost& stage = stages_[step.stage()];
    const int64_t peak =
        step.part.kind == Kind::kInputGrad ? stage.input_grad_peak : stage.backward_peak;
    const int64_t of_link = step.takes() == Passage::kAfar ? stage.output_bytes : 0;
    return peak - stage.kept_bytes - (step.is_recomputed ? stage.recomputed_bytes : 0) - of_link;
  }

  void Send(int& sent, int64_t bytes) {
    if (sent == kOutstandingSends) return;  // replaces the oldest one
    ++sent;
    links_ += bytes;
  }

  void Reach(int64_t more) {
    const int64_t now = kept_ + passing_ + links_ + std::max<int64_t>(more, 0);
    if (now <= highest_) return;
    highest_ = now;
    highest_activations_ = kept_;
  }

  const Program& program_;
  const std::vector<StageCost>& stages_;
  std::vector<schedule::Held> held_;
  std::vector<Received> inputs_, output_gradients_;  ///< per stage
  int64_t kept_ = 0, passing_ = 0, links_ = 0;
  int outputs_sent_ = 0, gradients_sent_ = 0;
  int64_t highest_ = -1, highest_activations_ = 0;
};

/// Per stage: bytes of weights that another layer of the same stage holds already (strata.tied).
std::vector<int64_t> SharedBytes(const Job& job, const Plan& plan) {
  std::vector<int64_t> shared(plan.stages.size());
  for (const TiePlan& tie : plan.ties) {
    for (size_t use = 1; use < tie.layers.size(); ++use) {
      const auto earlier = tie.stages.begin() + static_cast<std::ptrdiff_t>(use);
      if (std::find(tie.stages.begin(), earlier, tie.stages[use]) == earlier) continue;
      shared[tie.stages[use]] +=
          DTypeSize(job.precision.params) * SharedElements(job.layers[tie.layers[use]]);
    }
  }
  return shared;
}

}  // namespace

RowPeaks::RowPeaks(const Program& program)
    : program_(program), walk_(program), slots_(schedule::StageBuffers(program)) {}

RowPeak RowPeaks::Of(int rank, const std::vector<StageCost>& stages) const {
  RowMemory row(program_, stages, slots_, rank);
  walk_.Over(rank, [&](const Step& step) { row.Do(step); });
  return row.peak();
}

std::vector<RankMemory> LastingMemory(const Job& job, const Plan& plan, const ModelCosts& costs,
                                      const std::vector<StageCost>& stages) {
  const std::vector<int64_t> shared = SharedBytes(job, plan), texts = SampleBytes(job, plan);
  const double owners = job.zero == 1 ? plan.topology.Size(kDataAxis) : 1;
  const auto share = [&](int64_t bytes) {
    return static_cast<int64_t>(static_cast<double>(bytes) / owners);
  };
  std::vector<RankMemory> ranks(texts.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].rank = static_cast<int>(r);
    ranks[r].texts = texts[r];
  }
  for (const StagePlan& place : plan.stages) {
    RankMemory& memory = ranks[static_cast<size_t>(place.rank)];
    const StageCost& stage = stages[static_cast<size_t>(place.stage)];
    const int64_t own = stage.gradient_bytes - shared[static_cast<size_t>(place.stage)];
    memory.weights += AllocatedBytes(own) + stage.weight_bytes - stage.gradient_bytes;
    memory.weights += stage.buffer_bytes;
    memory.gradients += AllocatedBytes(own) + stage.gradient_bytes - own;
    memory.optimizer += costs.moments * AllocatedBytes(share(own)) + share(stage.extra_state_bytes);
  }
  return ranks;
}

std::vector<RankMemory> MemoryOfRows(std::vector<RankMemory> lasting,
                                     const std::vector<StageCost>& stages, const Program& program) {
  STRATA_CHECK(stages.size() == program.stage_ranks.size()) << program.stages();
  const RowPeaks peaks(program);
  for (RankMemory& rank : lasting) rank = rank.With(peaks.Of(rank.rank, stages));
  return lasting;
}

std::vector<RankMemory> ForecastMemory(const Job& job, const Plan& plan, const ModelCosts& costs,
                                       const Program& program) {
  const std::vector<StageCost> stages = StageCosts(costs, plan);
  return MemoryOfRows(LastingMemory(job, plan, costs, stages), stages, program);
}

int64_t LargestTotal(const std::vector<RankMemory>& ranks) {
  int64_t largest = 0;
  for (const RankMemory& rank : ranks) largest = std::max(largest, rank.total());
  return largest;
}

}  // namespace strata
