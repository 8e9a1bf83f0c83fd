// JobNetwork: a job's layers as the planner sees them, on a cluster's devices.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan_costs.h"
#include "engine/search/cluster/cluster.h"
#include "engine/search/cluster/cluster_forecast.h"

namespace strata::search {

/// What the layers do (plan/plan_costs.h), by micro-batch size and model degree. Knows no device.
class JobCosts {
 public:
  /// Throws ConfigError where the job cannot be planned at its own micro-batch size, and where the
  /// shapes are not known. Both must outlive it.
  JobCosts(const Job& job, Script* script);

  struct Sized {
    ModelCosts costs;
    std::vector<int64_t>
        boundaries;  ///< bytes that cross a cut before each layer; last: the output
  };
  /// Null where the job does not run so: `refusals` says why.
  const Sized* Of(int64_t micro_batch_size, int model);
  const Job& job() const { return job_; }
  /// Why some micro-batch sizes and model degrees were left out, each reason once.
  const std::vector<std::string>& refusals() const { return refusals_; }

 private:
  Sized Make(int64_t micro_batch_size, int model) const;

  const Job& job_;
  Script* const script_;
  std::map<std::pair<int64_t, int>, std::unique_ptr<Sized>> known_;
  std::vector<std::string> refusals_;
};

class JobNetwork : public Network {
 public:
  /// Both must outlive it.
  JobNetwork(JobCosts& costs, const Cluster& cluster);

  int layers() const override;
  Training training() const override { return training_; }
  std::shared_ptr<const StageTable> Table(int64_t micro_batch_size, int model,
                                          Recompute recompute) override;
  /// Of a planned job, with what it recomputes, for its own stages; null where the network does not
  /// run so.
  std::shared_ptr<const StageTable> TableOf(const Plan& plan);

 private:
  void SetTraining();
  DeviceRates RatesFor(int model) const;
  std::shared_ptr<const ModelCosts> Timed(int64_t micro_batch_size, int model);

  JobCosts& costs_;
  const Cluster& cluster_;
  Training training_;
  std::map<std::pair<int64_t, int>, std::shared_ptr<const ModelCosts>> timed_;
  std::map<std::tuple<int64_t, int, Recompute>, std::shared_ptr<const StageTable>> tables_;
};

}  // namespace strata::search
