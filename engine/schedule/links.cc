#include "engine/schedule/links.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace strata::schedule {

Passage PassageOf(const Program& program, const Message& message) {
  const auto [first, last] =
      std::minmax({message.stage, SenderOf(message.direction, message.stage)});
  if (first < 0 || last >= program.stages()) return Passage::kNone;
  return program.crosses_after(first) ? Passage::kAfar : Passage::kLocal;
}

Action SendOf(const Message& message) {
  const bool is_forward = message.direction == Direction::kForward;
  return MakeAction(SenderOf(message.direction, message.stage),
                    is_forward ? Kind::kSendF : Kind::kSendB, message.micro_batch);
}

Action RecvOf(const Message& message) {
  const bool is_forward = message.direction == Direction::kForward;
  return MakeAction(message.stage, is_forward ? Kind::kRecvF : Kind::kRecvB, message.micro_batch);
}

Links::Links(const Program& program) {
  std::map<std::tuple<Direction, int, int>, int> known;
  for (Direction direction : {Direction::kForward, Direction::kBackward}) {
    std::vector<int>& into = into_[static_cast<int>(direction)];
    into.assign(program.stages(), -1);
    for (int stage = 0; stage < program.stages(); ++stage) {
      const int sender = SenderOf(direction, stage);
      if (sender < 0 || sender >= program.stages()) continue;
      const int from = program.stage_ranks[sender], to = program.stage_ranks[stage];
      if (from == to) continue;
      const auto [entry, is_new] = known.try_emplace({direction, from, to}, size());
      if (is_new) links_.push_back({direction, from, to});
      into[stage] = entry->second;
    }
  }
}

}  // namespace strata::schedule
