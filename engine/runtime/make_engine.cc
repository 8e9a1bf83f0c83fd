// Computes the links and groups of a plan, in the one order in which all ranks open them.
#include "engine/runtime/make_engine.h"

#include <algorithm>
#include <utility>

#include "engine/runtime/rank_engine.h"
#include "engine/runtime/step/row.h"
#include "engine/runtime/update/tie_table.h"

namespace strata {

std::vector<LinkSpec> LinksOf(const Plan& plan) {
  std::vector<LinkSpec> links;
  const auto add = [&](const LinkSpec& link) {
    if (std::ranges::find(links, link) == links.end()) links.push_back(link);
  };
  for (const RankList& pipe : plan.topology.CommLists(kPipeAxis)) {
    for (size_t stage = 0; stage + 1 < plan.stages.size(); ++stage) {
      const int rank = pipe[plan.stages[stage].rank];
      const int next = pipe[plan.stages[stage + 1].rank];
      if (rank == next) continue;
      add({rank, next, kActivations});
      add({next, rank, kGradients});
    }
  }
  return links;
}

std::vector<GroupSpec> GroupsOf(const Plan& plan) {
  std::vector<GroupSpec> groups;
  const auto add = [&](const std::string& name, const RankList& ranks) {
    if (ranks.size() > 1) groups.push_back({name, ranks});
  };
  const Topology& topology = plan.topology;
  for (int index = 0; index < topology.Size(kDataAxis); ++index) {
    add("replica", topology.AxisList(kDataAxis, index));
  }
  for (const RankList& ranks : topology.CommLists(kDataAxis)) add("data", ranks);
  for (const RankList& ranks : topology.CommLists(kPipeAxis)) add("pipe", ranks);
  for (const RankList& ranks : topology.CommLists(kModelAxis)) add("model", ranks);
  add("world", topology.Filter({}));
  for (const TiePlan& tie : plan.ties) {
    for (const RankList& pipe : topology.CommLists(kPipeAxis)) {
      add(TieTable::GroupName(tie), TieTable::Holders(tie, plan, pipe));
    }
  }
  return groups;
}

std::unique_ptr<Engine> MakeRankEngine(const Job& job, const Plan& plan, EngineScript& script,
                                       std::unique_ptr<Transport> transport, const RankPlace& place,
                                       std::shared_ptr<ProvedPrograms> programs) {
  RankServices services;
  services.programs = programs ? std::move(programs) : std::make_shared<ProvedPrograms>();
  const int rank = transport->rank();
  services.progress = std::make_shared<Progress>(rank, FaultOf(rank), place.flight);
  services.transport = std::move(transport);
  services.local_rank = place.local_rank;
  services.local_ranks = place.local_world_size;
  services.requests = std::make_shared<Requests>();
  services.watchdog = std::make_shared<Watchdog>(
      std::vector<WatchedRank>{{services.progress, services.transport}}, job.hang_timeout);
  return std::make_unique<RankEngine>(job, plan, script, std::move(services));
}

}  // namespace strata
