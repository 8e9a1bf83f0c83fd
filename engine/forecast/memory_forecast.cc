#include "engine/forecast/memory_forecast.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/outstanding_sends.h"
#include "engine/base/size_class.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/forecast/check_cost.h"
#include "engine/job/parameter_groups.h"
#include "engine/layers/layer_types.h"
#include "engine/plan/language_model.h"
#include "engine/schedule/lifetimes.h"

namespace strata {
namespace {

using schedule::Kind;
using schedule::Passage;
using schedule::Program;
using schedule::Step;

/// Follows the gradients of a stage through the actions of a row.
///
/// A pass is a backward, or W. The first one of a stage begins with few gradients and many
/// activations and ends with all gradients. Where a stage is alone on its rank, a first pass that
/// is also the last one frees gradients as it goes and ends with the share.
class GradientRow {
 public:
  GradientRow(const LateGradients& late, int passes, bool is_alone)
      : late_(late), left_(passes), is_alone_(is_alone) {}

  int64_t now() const { return now_; }
  void BeginForward() {
    if (is_new_ && now_ == 0) now_ = late_.in_forward;
  }
  /// Returns the most bytes at the time in the pass when there are most activations.
  /// `is_backward`: no W, whose layers are not reported one by one.
  int64_t BeginPass(bool is_backward) {
    if (!is_new_) return end_ = now_;
    is_new_ = false;
    const bool is_only = left_ == 1 && is_alone_ && is_backward;
    end_ = is_only ? late_.share : late_.whole;
    return std::max(now_, is_only ? late_.only : late_.first);
  }
  void EndPass() { now_ = --left_ == 0 ? late_.share : late_.whole; }
  /// The bytes at the end of the last pass.
  int64_t end() const { return end_; }

 private:
  const LateGradients& late_;
  int left_;  // passes to come
  const bool is_alone_;
  bool is_new_ = true;  // before the first pass
  int64_t now_ = 0, end_ = 0;
};

/// Follows one rank through its row of the program and keeps the sum of the bytes that are alive:
/// activations that are kept, tensors that pass from action to action, messages, and gradients that
/// come late. The highest sum is the peak. Takes time proportional to the number of actions.
///
/// Messages: a receive is posted as soon as a slot for it is free (schedule::StageBuffers), and has
/// its memory from then on. A slot is free again when its micro-batch is done. So as many are held
/// as there are slots, and in the end as there are micro-batches left.
class RowMemory {
 public:
  RowMemory(const Program& program, const std::vector<StageCost>& stages,
            const std::vector<int>& slots, const RankMemory& lasting)
      : program_(program),
        stages_(stages),
        held_(stages.size()),
        inputs_(stages.size()),
        output_gradients_(stages.size()) {
    for (const LateGradients& late : lasting.late) {
      late_.emplace(late.stage, GradientRow(late, program.micro_batches, lasting.late.size() == 1));
    }
    for (const int s : schedule::StagesOfRank(program, lasting.rank)) {
      AddStage(s, std::min(slots[s], program.micro_batches));
    }
    Reach(0);
  }

  void Do(const Step& step) {
    const Kind kind = step.part.kind;
    const auto s = static_cast<size_t>(step.stage());
    const StageCost& stage = stages_[s];
    const bool is_forward = kind == Kind::kForward, is_pass = schedule::GivesWeightGrad(kind);
    GradientRow* const late = Late(step.stage());
    if (late) gradients_ -= late->now();
    if (late && is_forward) late->BeginForward();
    if (is_forward && step.takes() == Passage::kLocal) passing_ -= stage.input_bytes;
    const bool is_backward = kind == Kind::kBackward;
    const int64_t begin = !late ? 0 : is_pass ? late->BeginPass(is_backward) : late->now();
    gradients_ += begin;
    if (kind == Kind::kRecompute) Reach(stage.recompute_peak - stage.kept_bytes);
    if (schedule::GivesInputGrad(kind)) Reach(BackwardPeak(step));
    kept_ += step.Change(held_[s]);
    gradients_ -= begin;
    if (late && is_pass) {
      gradients_ += late->end();
      Reach(0);
      gradients_ -= late->end();
      late->EndPass();
    }
    if (late) gradients_ += late->now();
    if (is_forward) Reach(stage.forward_peak - stage.kept_bytes);
    PassMessages(step, stage);
  }

  RowPeak peak() const {
    return {.activations = highest_activations_,
            .buffers = highest_ - highest_activations_ - highest_gradients_,
            .gradients = highest_gradients_};
  }

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

  /// Counts the messages that the step is done with, and those that it gives.
  void PassMessages(const Step& step, const StageCost& stage) {
    const auto s = static_cast<size_t>(step.stage());
    const Kind kind = step.part.kind;
    const bool is_forward = kind == Kind::kForward;
    if (schedule::GivesWeightGrad(kind)) inputs_[s].Release(links_);
    if (schedule::GivesInputGrad(kind)) output_gradients_[s].Release(links_);
    if (is_forward && step.gives() == Passage::kLocal) passing_ += stages_[s + 1].input_bytes;
    if (step.gives() != Passage::kAfar) return;
    if (!is_forward) Send(gradients_sent_, stage.input_bytes);
    if (is_forward && !stage.keeps_output) Send(outputs_sent_, stage.output_bytes);
  }

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

  /// Null if the stage's gradients are always there.
  GradientRow* Late(int stage) {
    const auto found = late_.find(stage);
    return found == late_.end() ? nullptr : &found->second;
  }

  void Send(int& sent, int64_t bytes) {
    if (sent == kOutstandingSends) return;  // replaces the oldest one
    ++sent;
    links_ += bytes;
  }

  void Reach(int64_t more) {
    const int64_t now = kept_ + passing_ + links_ + gradients_ + std::max<int64_t>(more, 0);
    if (now <= highest_) return;
    highest_ = now;
    highest_activations_ = kept_;
    highest_gradients_ = gradients_;
  }

  const Program& program_;
  const std::vector<StageCost>& stages_;
  std::vector<schedule::Held> held_;
  std::vector<Received> inputs_, output_gradients_;  ///< per stage
  std::map<int, GradientRow> late_;                  ///< by stage
  int64_t kept_ = 0, passing_ = 0, links_ = 0, gradients_ = 0;
  int outputs_sent_ = 0, gradients_sent_ = 0;
  int64_t highest_ = -1, highest_activations_ = 0, highest_gradients_ = 0;
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

/// A block of gradients, as flat_parameters.h makes them.
struct Block {
  int64_t bytes = 0;
  int first_layer = 0, last_layer = 0;
  bool is_summed = false;
};

/// The blocks of a stage in the order in which they are summed.
std::vector<Block> BlocksOf(const Job& job, const StagePlan& stage) {
  std::map<int, std::vector<Block>> groups;
  for (int i = stage.begin; i < stage.end; ++i) {
    const LayerSpec& layer = job.layers[static_cast<size_t>(i)];
    for (const ParameterSpec& parameter : ParametersOf(layer)) {
      if (parameter.buffer || layer.IsFrozen(parameter.name)) continue;
      auto& blocks = groups[FindParameterGroup(job.optimizer, job.layers, i, parameter.name)];
      const bool begins = blocks.empty() || blocks.back().bytes >= GradientBlockBytes();
      if (begins) blocks.push_back({.first_layer = i});
      blocks.back().bytes += parameter.elements() * DTypeSize(job.precision.params);
      blocks.back().last_layer = i;
    }
  }
  std::vector<Block> all;
  for (const auto& [group, blocks] : groups) all.insert(all.end(), blocks.begin(), blocks.end());
  std::ranges::stable_sort(all, std::greater<>(), &Block::first_layer);
  return all;
}

/// Walks backwards over the layers of a stage. A block comes with its last layer, is summed when
/// its first layer is passed, and goes when the next one is summed. `part`: of the blocks that is
/// this rank's share of the sums. Returns the most bytes less those of activations that are freed.
int64_t MostInPass(const Plan& plan, const ModelCosts& costs, const StagePlan& stage,
                   std::vector<Block> blocks, double part) {
  int64_t most = 0, in_flight = 0, share = 0, freed = 0;
  for (int i = stage.end; i-- > stage.begin;) {
    int64_t now = in_flight + share - freed;
    for (const Block& block : blocks) {
      if (!block.is_summed && block.last_layer >= i) now += block.bytes;
    }
    most = std::max(most, now);
    for (Block& block : blocks) {
      if (block.is_summed || block.first_layer < i) continue;
      block.is_summed = true;
      in_flight = block.bytes;
      share += static_cast<int64_t>(part * static_cast<double>(block.bytes));
    }
    const auto layer = static_cast<size_t>(i);
    if (plan.layers[layer].segment < 0) freed += costs.layers[layer].kept_bytes;
  }
  return most;
}

/// `whole`: the bytes of the gradients of the stage that come late.
LateGradients LateOf(const Job& job, const Plan& plan, const ModelCosts& costs,
                     const StagePlan& stage, int64_t whole, int64_t share) {
  std::vector<Block> blocks = BlocksOf(job, stage);
  int64_t sum = 0;
  for (const Block& block : blocks) sum += block.bytes;
  if (sum == 0) return {.stage = stage.stage};
  // The model axis and ties leave a part of the parameters.
  const double own = static_cast<double>(whole) / static_cast<double>(sum);
  for (Block& block : blocks) {
    block.bytes = static_cast<int64_t>(own * static_cast<double>(block.bytes));
  }
  const double part = static_cast<double>(share) / static_cast<double>(whole);
  const bool has_head = costs.chunk_rows > 0 && stage.end == std::ssize(job.layers);
  return {.stage = stage.stage,
          .whole = whole,
          .share = share,
          .first = blocks.front().bytes,
          .only = MostInPass(plan, costs, stage, blocks, part),
          .in_forward = has_head ? blocks.front().bytes : 0};
}

}  // namespace

RowPeaks::RowPeaks(const Program& program)
    : program_(program), walk_(program), slots_(schedule::StageBuffers(program)) {}

RankMemory RowPeaks::Of(const RankMemory& lasting, const std::vector<StageCost>& stages) const {
  RowMemory row(program_, stages, slots_, lasting);
  walk_.Over(lasting.rank, [&](const Step& step) { row.Do(step); });
  return lasting.With(row.peak());
}

int64_t CheckBytes(const std::vector<StageCost>& stages, double state_bytes) {
  double most = 0;
  for (const StageCost& stage : stages) {
    const auto weights = static_cast<double>(stage.weight_bytes);
    const auto gradients = static_cast<double>(stage.gradient_bytes);
    const double state = static_cast<double>(stage.parameters) * state_bytes +
                         static_cast<double>(stage.extra_state_bytes);
    // The copies and the row of bytes, of which a link has another copy; on the other rank the
    // stage and the bytes.
    const double actions = 2 * (weights + 2 * gradients) + static_cast<double>(stage.backward_peak);
    most = std::max({most, actions, 2 * (weights + gradients + state)});
  }
  return std::llround(most);
}

std::vector<RankMemory> LastingMemory(const Job& job, const Plan& plan, const ModelCosts& costs,
                                      const std::vector<StageCost>& stages) {
  const std::vector<int64_t> shared = SharedBytes(job, plan), texts = SampleBytes(job, plan);
  const double owners = job.zero > 0 ? plan.topology.Size(kDataAxis) : 1;
  const auto share = [&](int64_t bytes) {
    return static_cast<int64_t>(static_cast<double>(bytes) / owners);
  };
  const int64_t check = IsChecked(job, plan) ? CheckBytes(stages, costs.state_bytes) : 0;
  std::vector<RankMemory> ranks(texts.size());
  for (size_t r = 0; r < ranks.size(); ++r) {
    ranks[r].rank = static_cast<int>(r);
    ranks[r].texts = texts[r];
    ranks[r].check = check;
  }
  for (const StagePlan& place : plan.stages) {
    RankMemory& memory = ranks[static_cast<size_t>(place.rank)];
    const StageCost& stage = stages[static_cast<size_t>(place.stage)];
    const int64_t own = stage.gradient_bytes - shared[static_cast<size_t>(place.stage)];
    memory.weights += AllocatedBytes(own) + stage.weight_bytes - stage.gradient_bytes;
    memory.weights += stage.buffer_bytes;
    memory.gradients += stage.gradient_bytes - own;
    if (job.zero == 2 && owners > 1) {
      memory.late.push_back(LateOf(job, plan, costs, place, own, share(own)));
    } else {
      memory.gradients += AllocatedBytes(own);
    }
    memory.optimizer += costs.moments * AllocatedBytes(share(own)) + share(stage.extra_state_bytes);
  }
  return ranks;
}

std::vector<RankMemory> MemoryOfRows(std::vector<RankMemory> lasting,
                                     const std::vector<StageCost>& stages, const Program& program) {
  STRATA_CHECK(stages.size() == program.stage_ranks.size()) << program.stages();
  const RowPeaks peaks(program);
  for (RankMemory& rank : lasting) rank = peaks.Of(rank, stages);
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
