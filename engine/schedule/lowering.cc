#include "engine/schedule/lowering.h"

#include <algorithm>
#include <set>
#include <utility>

#include "engine/schedule/checker.h"

namespace strata::schedule {
namespace {

using Row = std::vector<Action>;

bool Contains(const std::vector<int>& stages, int stage) {
  return std::find(stages.begin(), stages.end(), stage) != stages.end();
}

auto Find(Row& row, const Action& action) { return std::find(row.begin(), row.end(), action); }

bool Contains(Row& row, const Action& action) { return Find(row, action) != row.end(); }

// The place after the stage's last W or B and the sends that follow it; the end of the row if it
// has neither.
Row::iterator BehindLastWeightGrad(Row& row, int stage) {
  const auto last = std::find_if(row.rbegin(), row.rend(), [&](const Action& action) {
    const ActionParts parts(action);
    return std::any_of(parts.begin(), parts.end(), [&](const Action& part) {
      return part.stage == stage && GivesWeightGrad(part.kind);
    });
  });
  if (last == row.rend()) return row.end();
  auto behind = last.base();
  for (auto i = behind; i != row.end() && IsCommunication(i->kind); ++i) {
    if (IsSend(i->kind)) behind = i + 1;
  }
  return behind;
}

// The place for the reductions that end a step: before the first STEP, else the end of the row.
Row::iterator BeforeSteps(Row& row) {
  return std::find_if(row.begin(), row.end(),
                      [](const Action& action) { return action.kind == Kind::kStep; });
}

void AddReductionsOfRow(Row& row, const std::vector<int>& stages,
                        const std::vector<int>& tied_stages) {
  std::vector<Action> at_the_end;
  for (int stage : stages) {
    const Action tied = MakeAction(stage, Kind::kReduceTied);
    if (!Contains(tied_stages, stage) || Contains(row, tied)) continue;
    std::erase(row, MakeAction(stage, Kind::kReduceGrad));
    at_the_end.push_back(tied);
  }
  for (int stage : stages) {
    const Action reduce = MakeAction(stage, Kind::kReduceGrad);
    if (Contains(row, reduce)) continue;
    if (Contains(tied_stages, stage)) {
      at_the_end.push_back(reduce);
    } else {
      row.insert(BehindLastWeightGrad(row, stage), reduce);
    }
  }
  row.insert(BeforeSteps(row), at_the_end.begin(), at_the_end.end());
}

}  // namespace

Program AddRecomputation(Program program, const std::vector<int>& stages) {
  if (!program.is_training || stages.empty()) return program;
  for (Row& row : program.rows) {
    std::set<std::pair<int, int>> recomputed;
    Row result;
    for (const Action& action : row) {
      for (const Action& part : ActionParts(action)) {
        const std::pair<int, int> pair(part.stage, part.micro_batch);
        if (part.kind == Kind::kRecompute) recomputed.insert(pair);
        if (!GivesInputGrad(part.kind) || !Contains(stages, part.stage)) continue;
        if (!recomputed.erase(pair)) {
          result.push_back(MakeAction(part.stage, Kind::kRecompute, part.micro_batch));
        }
      }
      result.push_back(action);
    }
    row = std::move(result);
  }
  return program;
}

Program AddReductions(Program program, const std::vector<int>& tied_stages) {
  if (!program.is_training) return program;
  for (int rank = 0; rank < program.ranks(); ++rank) {
    AddReductionsOfRow(program.rows[rank], StagesOfRank(program, rank), tied_stages);
  }
  return program;
}

Program AddSteps(Program program) {
  if (!program.is_training) return program;
  for (int stage = 0; stage < program.stages(); ++stage) {
    Row& row = program.rows[program.stage_ranks[stage]];
    const Action step = MakeAction(stage, Kind::kStep);
    if (!Contains(row, step)) row.push_back(step);
  }
  return program;
}

Program Lower(const Program& program, const LoweringOptions& options) {
  return AddSteps(AddReductions(AddCommunication(program), options.tied_stages));
}

Program LowerAndCheck(const Program& program, const LoweringOptions& options) {
  if (!HasCommunication(program)) CheckOrThrow(program);
  Program lowered = Lower(program, options);
  CheckOrThrow(lowered, {.lowered = true, .tied_stages = options.tied_stages});
  return lowered;
}

}  // namespace strata::schedule
