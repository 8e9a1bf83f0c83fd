// BoundaryTable: the shapes between stages, for micro-batches of any size. Torch-free.
#pragma once

#include <cstdint>
#include <map>

#include "engine/plan/plan.h"
#include "engine/runtime/run_spec.h"
#include "engine/spec/job.h"
#include "engine/spec/script.h"

namespace strata {

class BoundaryTable {
 public:
  /// Everything must outlive the table.
  BoundaryTable(const Job& job, const Plan& plan, Script& script)
      : job_(job), plan_(plan), script_(script) {}

  /// The boundaries for micro-batches of `rows` samples; they live as long as the table. Those of
  /// the plan's size are the plan's; others are inferred once. Throws ConfigError as InferShapes().
  const Boundaries& Of(int64_t rows);

 private:
  Boundaries Planned() const;
  Boundaries Inferred(int64_t rows) const;

  const Job& job_;
  const Plan& plan_;
  Script& script_;
  std::map<int64_t, Boundaries> tables_;
};

}  // namespace strata
