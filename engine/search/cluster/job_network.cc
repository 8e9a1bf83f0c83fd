#include "engine/search/cluster/job_network.h"

#include <algorithm>
#include <numeric>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/connections.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/own_type.h"
#include "engine/plan/plan.h"

namespace strata::search {
namespace {

/// The job as one stage with one micro-batch of this size; the job's own parallel settings are
/// dropped.
Job Alone(const Job& job, int64_t micro_batch_size, int model) {
  Job alone = job;
  alone.parallel = {1, 1, model};
  alone.batch = {micro_batch_size, 1, micro_batch_size};
  alone.partition = {.method = "uniform", .bounds = {}, .function = {}};
  alone.schedule = {};
  alone.stages_per_rank = 1;
  alone.recompute = {};
  alone.memory = 0;
  alone.ranks = {};
  alone.costs.clear();
  alone.device = "cpu";
  alone.transport.clear();
  return alone;
}

/// The type in which most parameters compute, that is the type of the large products.
DType MainType(const Job& job) {
  std::map<DType, int64_t> elements;
  for (const LayerSpec& layer : job.layers) {
    for (const ParameterSpec& parameter : ParametersOf(layer)) {
      if (parameter.buffer) continue;
      const bool is_jobs = parameter.dtype == DType::kFloat32 && !OwnType(layer);
      elements[is_jobs ? job.precision.compute : parameter.dtype] += parameter.elements();
    }
  }
  if (elements.empty()) return DType::kFloat32;
  return std::max_element(elements.begin(), elements.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

std::vector<int> Segments(Recompute recompute, int layers) {
  std::vector<int> segments;
  if (recompute == Recompute::kNone) return segments;
  segments.assign(static_cast<size_t>(layers), 0);
  if (recompute == Recompute::kLayers) std::iota(segments.begin(), segments.end(), 0);
  return segments;
}

DeviceRates RatesOf(const Device& device, const Job& job) {
  DeviceRates rates;
  rates.flops = device.RateOf(MainType(job));
  rates.memory = device.efficiency * device.memory_bandwidth;
  rates.launch = device.launch;
  return rates;
}

/// The seconds of all layers of a micro-batch on a device.
double SecondsOn(const Device& device, JobCosts& costs) {
  const Job& job = costs.job();
  ModelCosts timed = costs.Of(ResolveBatch(job.batch).micro_batch_size, 1)->costs;
  SetSeconds(timed, RatesOf(device, job));
  return SumLayers(timed, 0, static_cast<int>(timed.layers.size())).seconds();
}

}  // namespace

void SetAbilities(JobCosts& costs, Cluster& cluster) {
  std::vector<RankHost> nodes;
  const double usual = cluster.kinds.empty() ? 0 : SecondsOn(cluster.device, costs);
  const auto add = [&](int count, const RankRule& says, const std::string& where) {
    for (int i = 0; i < count; ++i) {
      nodes.push_back({Str("node", nodes.size()), cluster.devices_per_node, says, where});
    }
  };
  if (cluster.kinds.empty()) add(cluster.nodes, {}, "");
  for (const NodeKind& kind : cluster.kinds) {
    const double memory = std::max(0.0, kind.device.memory - kind.reserve);
    add(kind.nodes,
        {.speed = usual / SecondsOn(kind.device, costs), .memory = static_cast<int64_t>(memory)},
        kind.device.name);
  }
  const RanksSpec& ranks = costs.job().ranks;
  cluster.abilities.clear();
  if (cluster.kinds.empty() && ranks.rules.empty()) return;
  cluster.abilities =
      AbilitiesOf(ranks, nodes, cluster.devices(), static_cast<int64_t>(cluster.memory()));
}

std::vector<RankHost> HostsOf(const Cluster& cluster) {
  std::vector<RankHost> hosts;
  for (const RankAbility& device : cluster.abilities) {
    const size_t node = hosts.size() / static_cast<size_t>(cluster.devices_per_node);
    hosts.push_back({.name = Str("node", node),
                     .ranks = 1,
                     .says = {.speed = device.speed, .memory = device.memory},
                     .where = {}});
  }
  return hosts;
}

JobCosts::JobCosts(const Job& job, Script* script) : job_(job), script_(script) {
  const int64_t size = ResolveBatch(job.batch).micro_batch_size;
  known_[{size, 1}] = std::make_unique<Sized>(Make(size, 1));
  if (!known_[{size, 1}]->has_shapes) {
    throw ConfigError(
        "the planner needs the shapes of all layers: give the job an input = "
        "{shape=..., dtype=...}");
  }
}

JobCosts::Sized JobCosts::Make(int64_t micro_batch_size, int model) const {
  const Job alone = Alone(job_, micro_batch_size, model);
  Plan plan = MakePlan(alone, {}, script_);
  plan.device.clear();  // the scratch memory of the cluster's kernels is not known
  Sized sized;
  sized.costs = CostsOf(alone, plan, script_);
  sized.has_shapes = !plan.stages.front().input.empty();
  return sized;
}

const JobCosts::Sized* JobCosts::Of(int64_t micro_batch_size, int model) {
  const auto [known, is_new] = known_.try_emplace({micro_batch_size, model});
  if (!is_new) return known->second.get();
  try {
    known->second = std::make_unique<Sized>(Make(micro_batch_size, model));
  } catch (const ConfigError& error) {
    const std::string why =
        Str(model > 1 ? Str("model = ", model) : Str("micro_batch_size = ", micro_batch_size),
            " is left out: ", error.what());
    const bool is_told = std::any_of(refusals_.begin(), refusals_.end(), [&](const auto& told) {
      return told.substr(0, told.find(' ')) == why.substr(0, why.find(' '));
    });
    if (!is_told) refusals_.push_back(why);
  }
  return known->second.get();
}

JobNetwork::JobNetwork(JobCosts& costs, const Cluster& cluster) : costs_(costs), cluster_(cluster) {
  SetTraining();
}

int JobNetwork::layers() const { return static_cast<int>(costs_.job().layers.size()); }

void JobNetwork::SetTraining() {
  const int64_t size = ResolveBatch(costs_.job().batch).micro_batch_size;
  ModelCosts costs = costs_.Of(size, 1)->costs;
  SetSeconds(costs, RatesFor(1));
  training_.state_bytes = costs.state_bytes;
  training_.update_seconds = costs.update_seconds;
  training_.clips = costs_.job().clip > 0;
}

DeviceRates JobNetwork::RatesFor(int model) const {
  DeviceRates rates = RatesOf(cluster_.device, costs_.job());
  for (int first = 0; model > 1 && first + model <= cluster_.devices(); first += model) {
    const double axis = cluster_.GroupOf(first, model, 1).within.bandwidth;
    rates.axis = first == 0 ? axis : std::min(rates.axis, axis);
  }
  return rates;
}

/// The costs with the seconds of this cluster's devices; null if the network cannot run so.
std::shared_ptr<const ModelCosts> JobNetwork::Timed(int64_t micro_batch_size, int model) {
  const JobCosts::Sized* sized = costs_.Of(micro_batch_size, model);
  if (sized == nullptr) return nullptr;
  std::shared_ptr<const ModelCosts>& timed = timed_[{micro_batch_size, model}];
  if (timed == nullptr) {
    auto costs = std::make_shared<ModelCosts>(sized->costs);
    SetSeconds(*costs, RatesFor(model));
    timed = std::move(costs);
  }
  return timed;
}

std::shared_ptr<const StageTable> JobNetwork::Table(int64_t micro_batch_size, int model,
                                                    Recompute recompute) {
  const auto [known, is_new] = tables_.try_emplace({micro_batch_size, model, recompute});
  if (!is_new) return known->second;
  auto costs = Timed(micro_batch_size, model);
  if (costs == nullptr) return nullptr;
  const std::vector<int> kinds = KindsOf(*costs);
  known->second = std::make_shared<StageTable>(
      layers(),
      [costs = std::move(costs), segments = Segments(recompute, layers())](int begin, int end) {
        return SumLayers(*costs, begin, end, segments);
      },
      kinds);
  return known->second;
}

std::shared_ptr<const StageTable> JobNetwork::TableOf(const Plan& plan) {
  const int64_t size = plan.batch.micro_batch_size;
  const int model = plan.topology.Size(kModelAxis);
  const auto costs = Timed(size, model);
  if (costs == nullptr) return nullptr;
  std::map<std::pair<int, int>, StageCost> stages;
  const std::vector<int> segments = plan.segments();
  for (const StagePlan& place : plan.stages) {
    stages[{place.begin, place.end}] = SumLayers(*costs, place.begin, place.end, segments);
  }
  return std::make_shared<StageTable>(layers(), [stages = std::move(stages)](int begin, int end) {
    return stages.at({begin, end});
  });
}

}  // namespace strata::search
