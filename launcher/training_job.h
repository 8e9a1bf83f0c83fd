// TrainingJob: what the processes of `strata train` do.
#pragma once

#include "launcher/rank_job.h"

namespace strata::launcher {

class TrainingJob : public RankJob {
 public:
  using RankJob::RankJob;

 protected:
  void OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
              Reporter& reporter) override;
  void Work(const Job& job, Engine& engine, int rank, RankReporter& reporter) override;

 private:
  double bubble_ = 0;
};

}  // namespace strata::launcher
