#include "engine/schedule/memory.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/check.h"
#include "engine/plan/size_class.h"
#include "engine/schedule/joining.h"
#include "engine/schedule/lifetimes.h"
#include "engine/spec/layers.h"

namespace strata {
namespace {

using schedule::Action;
using schedule::Kind;
using schedule::Program;

/// Messages of one link that may not have left yet, and so keep their tensors.
constexpr int kOutstandingSends = 4;

/// What each stage's tensors take while they are there.
class RowMemory {
 public:
  RowMemory(const Program& program, const std::vector<StageCost>& stages,
            const std::vector<int>& slots, const std::vector<std::vector<bool>>& group_ends,
            int rank)
      : program_(program),
        stages_(stages),
        slots_(slots),
        group_ends_(group_ends),
        rank_(rank),
        recomputed_(stages.size()),
        waiting_(stages.size()) {
    for (int s = 0; s < program.stages(); ++s) {
      if (program.stage_ranks[s] == rank) AddLinks(s);
    }
  }

  /// Runs the row; then activations() and buffers() are those of the highest moment.
  void Run() {
    for (const Action& action : program_.rows[rank_]) {
      for (const Action& part : schedule::Parts(action)) {
        if (part.kind == Kind::kRecompute) recomputed_[part.stage] = true;
      }
    }
    Reach(0);
    for (const Action& action : program_.rows[rank_]) {
      for (const Action& part : schedule::Parts(action)) Do(part);
    }
  }

  int64_t activations() const { return highest_activations_; }
  int64_t buffers() const { return highest_ - highest_activations_; }

 private:
  bool comes_from_afar(int s) const { return s > 0 && program_.crosses_after(s - 1); }
  bool goes_afar(int s) const { return program_.crosses_after(s); }
  const StageCost& stage(int s) const { return stages_[static_cast<size_t>(s)]; }

  /// Receives are posted as far ahead as there are slots; each takes its memory then.
  void AddLinks(int s) {
    const int posted = std::min(slots_[s], program_.micro_batches);
    if (comes_from_afar(s)) links_ += posted * stage(s).input_bytes;
    if (goes_afar(s)) links_ += posted * stage(s).output_bytes;
  }

  /// What a micro-batch adds beside the slot of its input.
  int64_t Kept(int s) const {
    return stage(s).kept_bytes - (comes_from_afar(s) ? stage(s).input_bytes : 0);
  }
  int64_t Deferred(int s) const {
    return stage(s).deferred_bytes - (comes_from_afar(s) ? stage(s).input_bytes : 0);
  }

  void Do(const Action& part) {
    const int s = part.stage;
    switch (part.kind) {
      case Kind::kForward:
        if (s > 0 && !comes_from_afar(s)) passing_ -= stage(s).input_bytes;
        Reach(stage(s).forward_peak - stage(s).kept_bytes, Kept(s));
        kept_ += Kept(s);
        if (goes_afar(s)) {
          if (!stage(s).keeps_output) Send(outputs_sent_, stage(s).output_bytes);
        } else if (s < program_.last_stage()) {
          passing_ += stage(s + 1).input_bytes;
        }
        break;
      case Kind::kRecompute:
        kept_ += stage(s).recomputed_bytes;
        Reach(0);
        break;
      case Kind::kBackward:
        Backward(s, stage(s).backward_peak, 0);
        Join(part);
        break;
      case Kind::kInputGrad:
        Backward(s, stage(s).input_grad_peak, Deferred(s));
        break;
      case Kind::kWeightGrad:
        kept_ -= Deferred(s);
        Join(part);
        break;
      default:
        break;
    }
  }

  void Backward(int s, int64_t peak, int64_t stays) {
    const int64_t again = recomputed_[s] ? stage(s).recomputed_bytes : 0;
    const int64_t of_link = goes_afar(s) ? stage(s).output_bytes : 0;
    Reach(peak - stage(s).kept_bytes - again - of_link);
    kept_ -= again;
    kept_ += stays - Kept(s);
    if (comes_from_afar(s)) Send(gradients_sent_, stage(s).input_bytes);
  }

  /// What joined layers keep until the last micro-batch of its group.
  void Join(const Action& part) {
    const auto s = static_cast<size_t>(part.stage);
    if (group_ends_[s].empty()) return;
    const int64_t count = ++waiting_[s];
    kept_ += stages_[s].joined_bytes;
    if (!group_ends_[s][static_cast<size_t>(part.micro_batch)]) return;
    if (count > 1) Reach(count * stages_[s].joined_scratch);
    kept_ -= count * stages_[s].joined_bytes;
    waiting_[s] = 0;
  }

  void Send(int& sent, int64_t bytes) {
    if (sent == kOutstandingSends) return;  // the oldest goes
    ++sent;
    links_ += bytes;
  }

  /// `kept_more`: of the micro-batch that begins.
  void Reach(int64_t more, int64_t kept_more = 0) {
    const int64_t kept = kept_ + kept_more;
    const int64_t now = kept + passing_ + links_ + std::max<int64_t>(more, 0);
    if (now <= highest_) return;
    highest_ = now;
    highest_activations_ = kept;
  }

  const Program& program_;
  const std::vector<StageCost>& stages_;
  const std::vector<int>& slots_;
  const std::vector<std::vector<bool>>& group_ends_;
  const int rank_;
  std::vector<bool> recomputed_;
  std::vector<int64_t> waiting_;  // micro-batches of the stage's group
  int64_t kept_ = 0, passing_ = 0, links_ = 0;
  int outputs_sent_ = 0, gradients_sent_ = 0;
  int64_t highest_ = -1, highest_activations_ = 0;
};

/// Bytes of a stage's weights that another layer of the stage has already (strata.tied).
std::vector<int64_t> SharedBytes(const Job& job, const Plan& plan) {
  std::vector<int64_t> shared(plan.stages.size());
  for (const TiePlan& tie : plan.ties) {
    if (tie.frozen) continue;
    for (size_t use = 1; use < tie.layers.size(); ++use) {
      const auto earlier = tie.stages.begin() + static_cast<std::ptrdiff_t>(use);
      if (std::find(tie.stages.begin(), earlier, tie.stages[use]) == earlier) continue;
      const LayerSpec& layer = job.layers[static_cast<size_t>(tie.layers[use])];
      for (const ParameterSpec& parameter : ParametersOf(layer)) {
        if (std::ranges::find(layer.tied_weights, parameter.name) == layer.tied_weights.end()) {
          continue;
        }
        shared[static_cast<size_t>(tie.stages[use])] += parameter.elements() * 4;
      }
    }
  }
  return shared;
}

}  // namespace

MemoryForecast::MemoryForecast(const Job& job, const Plan& plan, const ModelCosts& costs,
                               Program program)
    : plan_(plan),
      program_(std::move(program)),
      slots_(schedule::StageBuffers(program_)),
      group_ends_(schedule::GroupEnds(program_, plan.joined())),
      shared_(SharedBytes(job, plan)),
      owners_(job.zero == 1 ? plan.topology.Size(kDataAxis) : 1),
      moments_(static_cast<int>(std::lround(costs.state_bytes / 4))) {
  STRATA_CHECK(plan.stages.size() == program_.stage_ranks.size()) << program_.stages();
}

RankMemory MemoryForecast::Of(int rank, const std::vector<StageCost>& stages) const {
  RankMemory memory;
  memory.rank = rank;
  for (const StagePlan& place : plan_.stages) {
    const auto s = static_cast<size_t>(place.stage);
    if (program_.stage_ranks[s] != rank) continue;
    const StageCost& stage = stages[s];
    const int64_t own = stage.gradient_bytes - shared_[s];
    memory.weights += AllocatedBytes(own) + stage.weight_bytes - stage.gradient_bytes;
    memory.weights += stage.buffer_bytes;
    memory.gradients += AllocatedBytes(own) + stage.gradient_bytes - own;
    memory.optimizer +=
        moments_ * AllocatedBytes(static_cast<int64_t>(static_cast<double>(own) / owners_));
  }
  RowMemory row(program_, stages, slots_, group_ends_, rank);
  row.Run();
  memory.activations = row.activations();
  memory.buffers = row.buffers();
  return memory;
}

std::vector<RankMemory> PredictMemory(const Job& job, const Plan& plan, const ModelCosts& costs,
                                      const Program& program) {
  const std::vector<StageCost> stages = StageCosts(costs, plan);
  const MemoryForecast forecast(job, plan, costs, program);
  std::vector<RankMemory> ranks;
  for (int rank = 0; rank < forecast.ranks(); ++rank) ranks.push_back(forecast.Of(rank, stages));
  return ranks;
}

int64_t LargestTotal(const std::vector<RankMemory>& ranks) {
  int64_t largest = 0;
  for (const RankMemory& rank : ranks) largest = std::max(largest, rank.total());
  return largest;
}

}  // namespace strata
