// Trace: when every action of every rank ran. A plain value, as the Program is that it belongs to.
// Torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/schedule/action.h"

namespace strata::schedule {

/// One action of one step. Seconds, from the trace's beginning. `waited` of them went by until what
/// the action needs had come from other ranks, so that it was at work for end - start - waited.
struct TracedAction {
  int64_t step = 0;
  Action action;
  double start = 0;
  double waited = 0;
  double end = 0;
  int64_t memory = 0;  ///< bytes of tensors that the rank holds at the end; 0 = not known

  bool operator==(const TracedAction&) const = default;
};

struct RankTrace {
  int rank = 0;
  /// By how much this rank's times may be wrong against rank 0's, at most. 0 where both read the
  /// same clock.
  double clock_error = 0;
  std::vector<TracedAction> actions;  ///< in the order in which they ran
};

/// The last steps of a training, the same ones of every rank, each with all of its actions.
struct Trace {
  std::string name;  ///< the job's
  std::vector<RankTrace> ranks;

  bool empty() const { return ranks.empty() || ranks[0].actions.empty(); }
  int64_t first_step() const { return empty() ? 0 : ranks[0].actions.front().step; }
  int64_t last_step() const { return empty() ? 0 : ranks[0].actions.back().step; }
};

/// Chrome's trace format, for Perfetto and chrome://tracing: a process per rank with its steps, in
/// them its actions and what they waited for, and a counter of its memory. Times are microseconds.
std::string ToChromeTrace(const Trace& trace);

}  // namespace strata::schedule
