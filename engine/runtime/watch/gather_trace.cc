// Clocks are aligned by questions and answers: rank 0 notes its time, broadcasts a question,
// gathers the other ranks' times and notes its time again. Each answer lies between the two, so the
// midpoint is wrong by at most half their distance. Traces are sent as JSON.
#include "engine/runtime/watch/gather_trace.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <utility>

#include "engine/base/machine/identity.h"
#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata {
namespace {

using schedule::RankTrace;
using schedule::Trace;
using schedule::TracedAction;

constexpr int kRounds = 8;

/// Asks once and improves the offset of each rank for which the error is smaller than before.
void AskRound(Transport& transport, const TraceClock& clock, std::vector<ClockOffset>& best) {
  const int64_t asked = clock.now();
  transport.Broadcast("", 0);
  const std::vector<std::string> answers = transport.Gather(Str(clock.now()));
  const int64_t answered = clock.now();
  if (transport.rank() != 0) return;
  const double error = static_cast<double>(answered - asked) * 0.5e-9;
  for (size_t rank = 0; rank < answers.size(); ++rank) {
    int64_t theirs = 0;
    std::from_chars(answers[rank].data(), answers[rank].data() + answers[rank].size(), theirs);
    if (error >= best[rank].error) continue;
    best[rank] = {static_cast<double>(asked - theirs) * 1e-9 + error, error};
  }
}

/// The first step of which every rank has all actions.
int64_t FirstCommonStep(const Trace& trace) {
  int64_t first = 0;
  for (const RankTrace& rank : trace.ranks) {
    if (rank.actions.empty()) return std::numeric_limits<int64_t>::max();
    first = std::max(first, rank.actions.front().step);
  }
  return first;
}

void Shift(Trace& trace, const std::vector<ClockOffset>& offsets) {
  double zero = std::numeric_limits<double>::max();
  for (const RankTrace& rank : trace.ranks) {
    if (!rank.actions.empty()) {
      zero = std::min(zero, rank.actions.front().start + offsets[rank.rank].add);
    }
  }
  for (RankTrace& rank : trace.ranks) {
    rank.clock_error = offsets[rank.rank].error;
    const double add = offsets[rank.rank].add - zero;
    for (TracedAction& action : rank.actions) {
      action.start += add;
      action.end += add;
    }
  }
}

}  // namespace

TraceClock MachineClock() {
  // Processes of one machine read the same clock. The boot id identifies the machine, whatever its
  // host name.
  return {.id = BootId()};
}

std::vector<ClockOffset> AlignClocks(Transport& transport, const TraceClock& clock) {
  const std::vector<std::string> ids = transport.Gather(clock.id);
  const bool is_one = !ids[0].empty() && std::ranges::count(ids, ids[0]) == std::ssize(ids);
  if (is_one) return std::vector<ClockOffset>(ids.size());
  std::vector<ClockOffset> offsets(ids.size(), {0, std::numeric_limits<double>::max()});
  for (int round = 0; round < kRounds; ++round) AskRound(transport, clock, offsets);
  for (size_t rank = 0; rank < ids.size(); ++rank) {
    if (rank == 0 || (!ids[0].empty() && ids[rank] == ids[0])) offsets[rank] = {};
  }
  return offsets;
}

Trace GatherTrace(const Tracer& tracer, Transport& transport, const std::string& name,
                  const TraceClock& clock) {
  const std::vector<ClockOffset> offsets = AlignClocks(transport, clock);
  const std::vector<std::string> texts = transport.Gather(ToText(tracer.Actions()));
  Trace trace;
  if (transport.rank() != 0) return trace;
  trace.name = name;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    trace.ranks.push_back({.rank = static_cast<int>(rank), .actions = ParseActions(texts[rank])});
  }
  const int64_t first = FirstCommonStep(trace);
  for (RankTrace& rank : trace.ranks) {
    std::erase_if(rank.actions, [&](const TracedAction& action) { return action.step < first; });
  }
  Shift(trace, offsets);
  return trace;
}

std::string ToText(const std::vector<TracedAction>& actions) {
  Value::List list;
  for (const TracedAction& traced : actions) {
    list.push_back(Value::List{traced.step, schedule::ToText(traced.action), traced.start,
                               traced.waited, traced.end, traced.memory});
  }
  return Value(std::move(list)).ToJson();
}

std::vector<TracedAction> ParseActions(std::string_view text) {
  std::vector<TracedAction> actions;
  const Value list = Value::FromJson(text);
  for (const Value& entry : list.as_list()) {
    const Value::List& fields = entry.as_list();
    actions.push_back({.step = fields.at(0).as_int(),
                       .action = schedule::ParseAction(fields.at(1).as_string()),
                       .start = fields.at(2).as_double(),
                       .waited = fields.at(3).as_double(),
                       .end = fields.at(4).as_double(),
                       .memory = fields.at(5).as_int()});
  }
  return actions;
}

}  // namespace strata
