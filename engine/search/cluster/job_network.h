// JobNetwork: gives the planner the costs of a job's layers on a cluster's devices.
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

/// The work and memory of a job's layers (plan/plan_costs.h) by micro-batch size and model degree,
/// independent of any device.
class JobCosts {
 public:
  /// Throws ConfigError if the job cannot be planned at its own micro-batch size, or if its shapes
  /// are not known. Both arguments must outlive this object.
  JobCosts(const Job& job, Script* script);

  struct Sized {
    ModelCosts costs;
    bool has_shapes = false;  ///< false: only the parameters are known
  };
  /// The costs for these sizes; null if the job cannot run so. Then `refusals` says why.
  const Sized* Of(int64_t micro_batch_size, int model);
  const Job& job() const { return job_; }
  /// The reasons why micro-batch sizes and model degrees were left out, each once.
  const std::vector<std::string>& refusals() const { return refusals_; }

 private:
  Sized Make(int64_t micro_batch_size, int model) const;

  const Job& job_;
  Script* const script_;
  std::map<std::pair<int64_t, int>, std::unique_ptr<Sized>> known_;
  std::vector<std::string> refusals_;
};

/// Sets what each device of the cluster can do for the job: by its kind of node, and by the job's
/// key `ranks`, in which nodes are called "node0", "node1", ... The speed of a kind of device is
/// the time that all layers of the job take on the first kind, divided by what they take on it.
/// Throws ConfigError as AbilitiesOf() does.
void SetAbilities(JobCosts& costs, Cluster& cluster);
/// A host for each device of the cluster, to plan for (PlanOptions::hosts); empty if all are alike.
std::vector<RankHost> HostsOf(const Cluster& cluster);

class JobNetwork : public Network {
 public:
  /// Both arguments must outlive this object.
  JobNetwork(JobCosts& costs, const Cluster& cluster);

  int layers() const override;
  Training training() const override { return training_; }
  std::shared_ptr<const StageTable> Table(int64_t micro_batch_size, int model,
                                          Recompute recompute) override;
  /// The table of a planned job with the plan's recomputation, for the plan's own stages; null if
  /// the network cannot run with the plan's sizes.
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
