#include "engine/schedule/costs/join_groups.h"

#include <cstdint>
#include <utility>

#include "engine/base/check.h"
#include "engine/schedule/program/row_walk.h"

namespace strata::schedule {

std::vector<std::vector<bool>> GroupEnds(const Program& program, const std::vector<int>& joined) {
  STRATA_CHECK(static_cast<int>(joined.size()) == program.stages()) << joined.size();
  const auto micro_batches = static_cast<int64_t>(program.micro_batches);
  std::vector<std::vector<bool>> ends(joined.size());
  std::vector<int64_t> groups(joined.size()), seen(joined.size());
  for (size_t s = 0; s < joined.size(); ++s) {
    if (joined[s] <= 1) continue;
    ends[s].resize(static_cast<size_t>(micro_batches));
    groups[s] = (micro_batches + joined[s] - 1) / joined[s];
  }
  RowWalk(program).OverAll([&](const Step& step) {
    const auto s = static_cast<size_t>(step.stage());
    if (!GivesWeightGrad(step.part.kind) || ends[s].empty()) return;
    const int64_t before = seen[s] * groups[s] / micro_batches;
    ends[s][step.micro_batch()] = ++seen[s] * groups[s] / micro_batches > before;
  });
  return ends;
}

Program SplitGroupEnds(Program program, const std::vector<int>& joined) {
  if (!program.is_training) return program;
  const std::vector<std::vector<bool>> ends = GroupEnds(program, joined);
  const auto splits = [&](const Action& part) {
    if (part.kind != Kind::kBackward || part.stage <= 0 || !program.has(part)) return false;
    const std::vector<bool>& of_stage = ends[part.stage];
    return !of_stage.empty() && of_stage[part.micro_batch];
  };
  for (auto& row : program.rows) {
    std::vector<Action> result;
    for (const Action& action : row) {
      const Parts parts(action);
      const Action& last = *(parts.end() - 1);
      if (!splits(last)) {
        result.push_back(action);
        continue;
      }
      const Action input_grad = MakeAction(last.stage, Kind::kInputGrad, last.micro_batch);
      result.push_back(action.kind == Kind::kOverlap ? MakeOverlap(*parts.begin(), input_grad)
                                                     : input_grad);
      result.push_back(MakeAction(last.stage, Kind::kWeightGrad, last.micro_batch));
    }
    row = std::move(result);
  }
  return program;
}

}  // namespace strata::schedule
