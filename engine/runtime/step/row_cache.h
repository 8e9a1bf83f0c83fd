// RowCache: the rows that a rank has run so far, by number of micro-batches. Torch-free.
#pragma once

#include <map>

#include "engine/plan/plan.h"
#include "engine/runtime/step/row.h"
#include "engine/spec/job/job.h"
#include "engine/spec/layers/script.h"

namespace strata {

/// Programs are generated, lowered and proved when they are first needed: the last step of an
/// epoch and evaluations have micro-batches of their own number.
class RowCache {
 public:
  /// Everything must outlive the cache.
  RowCache(const Job& job, const Plan& plan, Script& script, int pipe_rank)
      : job_(job), plan_(plan), script_(script), pipe_rank_(pipe_rank) {}

  /// The rank's row for `micro_batches` micro-batches of its replica; lives as long as the cache.
  /// Training may have none: then it only takes part in reductions and in the step. Throws
  /// ConfigError with the checker's report when the program is not right.
  const Row& Training(int micro_batches);
  const Row& Evaluation(int micro_batches);

 private:
  const Job& job_;
  const Plan& plan_;
  Script& script_;
  const int pipe_rank_;
  std::map<int, Row> training_, evaluation_;
};

}  // namespace strata
