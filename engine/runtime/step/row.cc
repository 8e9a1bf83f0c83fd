// The Compiler looks up, for each action of a rank, everything that does not change between runs:
// the link on which its message comes, whether it is recomputed, and whether it is the last of its
// kind.
#include "engine/runtime/step/row.h"

#include <algorithm>
#include <map>
#include <ranges>
#include <set>
#include <utility>

#include "engine/base/check.h"
#include "engine/schedule/lifetimes.h"

namespace strata {
namespace {

using schedule::Action;
using schedule::Kind;

bool MeansNothing(Kind kind) {
  return kind == Kind::kIdle || kind == Kind::kUnshard || kind == Kind::kReshard;
}

class Compiler {
 public:
  Compiler(const schedule::Program& program, int pipe_rank)
      : program_(program), actions_(program.rows.at(pipe_rank)), pipe_rank_(pipe_rank) {}

  Row Compile() {
    row_.is_training = program_.is_training;
    row_.stage_ranks = program_.stage_ranks;
    row_.slots = schedule::StageBuffers(program_);
    for (const Action& action : actions_) {
      for (const Action& part : schedule::ActionParts(action)) Add(part);
    }
    MarkRecomputed();
    MarkCompleting();
    MarkLast();
    return std::move(row_);
  }

 private:
  void Add(const Action& action) {
    if (MeansNothing(action.kind)) return;
    Instruction instruction;
    instruction.action = action;
    instruction.doing = {action.stage, schedule::ToText(action)};
    instruction.inbound = InboundOf(action);
    if (action.kind == Kind::kRecvF || action.kind == Kind::kRecvB) {
      row_.inbound[instruction.inbound].messages.push_back({action.stage, action.micro_batch});
    }
    row_.instructions.push_back(std::move(instruction));
  }

  /// The index of the link on which the message that the action needs comes; -1 if it comes from
  /// this rank.
  int InboundOf(const Action& action) {
    const bool needs_input = action.kind == Kind::kForward || action.kind == Kind::kRecvF;
    const bool needs_gradient =
        schedule::GivesInputGrad(action.kind) || action.kind == Kind::kRecvB;
    if (needs_input && action.stage > 0) {
      return FindInbound(program_.stage_ranks[action.stage - 1], kActivations);
    }
    if (needs_gradient && action.stage < program_.last_stage()) {
      return FindInbound(program_.stage_ranks[action.stage + 1], kGradients);
    }
    return -1;
  }

  int FindInbound(int from, int channel) {
    if (from == pipe_rank_) return -1;
    for (size_t i = 0; i < row_.inbound.size(); ++i) {
      const Inbound& inbound = row_.inbound[i];
      if (inbound.pipe_rank == from && inbound.channel == channel) return static_cast<int>(i);
    }
    row_.inbound.push_back({from, channel, {}});
    return static_cast<int>(row_.inbound.size()) - 1;
  }

  void MarkRecomputed() {
    std::set<std::pair<int, int>> recomputed;
    for (const Instruction& instruction : row_.instructions) {
      const Action& action = instruction.action;
      if (action.kind == Kind::kRecompute) recomputed.emplace(action.stage, action.micro_batch);
    }
    for (Instruction& instruction : row_.instructions) {
      const Action& action = instruction.action;
      instruction.is_recomputed =
          action.kind == Kind::kForward && recomputed.contains({action.stage, action.micro_batch});
    }
  }

  Instruction* LastOf(Kind kind) {
    const auto last = std::find_if(row_.instructions.rbegin(), row_.instructions.rend(),
                                   [&](const Instruction& i) { return i.action.kind == kind; });
    return last == row_.instructions.rend() ? nullptr : &*last;
  }

  /// Sets `completes` for each stage's last action that adds to weight gradients, if it is a
  /// backward.
  void MarkCompleting() {
    std::set<int> seen;
    for (Instruction& instruction : std::views::reverse(row_.instructions)) {
      const Action& action = instruction.action;
      if (!schedule::GivesWeightGrad(action.kind)) continue;
      const bool is_last = seen.insert(action.stage).second;
      instruction.completes = is_last && action.kind == Kind::kBackward;
    }
  }

  void MarkLast() {
    if (Instruction* tied = LastOf(Kind::kReduceTied)) tied->is_last_tied = true;
    Instruction* step = LastOf(Kind::kStep);
    if (step) step->is_last_step = true;
    STRATA_CHECK(step || !row_.is_training) << "a training program without a step";
  }

  const schedule::Program& program_;
  const std::vector<Action>& actions_;
  const int pipe_rank_;
  Row row_;
};

/// The stages in the order in which their gradients are summed.
std::vector<int> ReducedStages(const Row& row) {
  std::vector<int> stages;
  for (const Instruction& instruction : row.instructions) {
    const Action& action = instruction.action;
    if (action.kind == Kind::kReduceGrad) stages.push_back(action.stage);
  }
  return stages;
}

}  // namespace

Row WithoutMicroBatches(Row row) {
  std::erase_if(row.instructions, [](const Instruction& instruction) {
    return schedule::HasMicroBatch(instruction.action.kind);
  });
  row.inbound.clear();
  return row;
}

Row WithReductionsAs(const Row& planned, Row row) {
  const std::vector<int> order = ReducedStages(planned);
  auto next = order.begin();
  std::map<int, Instruction> ready;  // by stage: REDUCE_GRADs that must wait for earlier ones
  std::vector<Instruction> ordered;
  for (Instruction& instruction : row.instructions) {
    if (instruction.action.kind != Kind::kReduceGrad) {
      ordered.push_back(std::move(instruction));
      continue;
    }
    const int stage = instruction.action.stage;
    ready.emplace(stage, std::move(instruction));
    for (; next != order.end() && ready.contains(*next); ++next) {
      ordered.push_back(std::move(ready.at(*next)));
    }
  }
  STRATA_CHECK(next == order.end()) << "stage " << *next << " is not reduced";
  row.instructions = std::move(ordered);
  return row;
}

Row CompileRow(const schedule::Program& program, int pipe_rank) {
  return Compiler(program, pipe_rank).Compile();
}

}  // namespace strata
