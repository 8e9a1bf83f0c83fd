// Trace: when every action of every rank ran. It is a plain value, like the Program whose actions
// it has. Torch-free.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/schedule/action.h"

namespace strata::schedule {

/// One action of one step. Times are in seconds from the beginning of the trace. The first `waited`
/// seconds after `start` the rank waited for messages of other ranks; it worked for end - start -
/// waited.
struct TracedAction {
  int64_t step = 0;
  Action action;
  double start = 0;
  double waited = 0;
  double end = 0;
  int64_t memory = 0;  ///< bytes of tensors that the rank holds at `end`; 0 = not known

  bool operator==(const TracedAction&) const = default;
};

struct RankTrace {
  int rank = 0;
  /// The largest error of this rank's times against rank 0's, in seconds. 0 if both read the same
  /// clock.
  double clock_error = 0;
  std::vector<TracedAction> actions;  ///< in the order in which they ran
};

/// The last steps of a training. All ranks have the same steps, each with all its actions.
struct Trace {
  std::string name;  ///< of the job
  std::vector<RankTrace> ranks;

  bool empty() const { return ranks.empty() || ranks[0].actions.empty(); }
  int64_t first_step() const { return empty() ? 0 : ranks[0].actions.front().step; }
  int64_t last_step() const { return empty() ? 0 : ranks[0].actions.back().step; }
};

/// Writes Chrome's trace format, which Perfetto and chrome://tracing read: one process for each
/// rank, with its steps, its actions and their waits, and a counter of its memory. Times are in
/// microseconds.
std::string ToChromeTrace(const Trace& trace);

}  // namespace strata::schedule
