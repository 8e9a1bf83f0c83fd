// TrainingJob: the RankJob of `strata train`. Every process trains; rank 0 reports.
#pragma once

#include <vector>

#include "engine/picture/picture.h"
#include "launcher/commands/rank_job.h"

namespace strata::launcher {

class TrainingJob : public RankJob {
 public:
  using RankJob::RankJob;

 protected:
  void OnJob(const Job& job, Reporter& reporter) override;
  void OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
              Reporter& reporter) override;
  void Work(const Job& job, Engine& engine, Script& script, int rank,
            RankReporter& reporter) override;

 private:
  // Set in rank 0's starter, for rank 0:
  double bubble_ = 0;
  std::vector<int> work_;  // per rank; equal for ranks with the same work (stragglers.h)
  schedule::Program program_;
  picture::Picture planned_;  // set only if a flag asks for a picture
};

}  // namespace strata::launcher
