#include "engine/plan/grid.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

RankList AllRanks(const Topology& topology) { return topology.Filter({}); }

/// All groups on an axis. On an axis that the topology does not have, every rank is alone.
std::vector<RankList> GroupsOnAxis(const Topology& topology, std::string_view axis) {
  if (topology.Has(axis)) return topology.CommLists(axis);
  std::vector<RankList> alone;
  for (int rank : AllRanks(topology)) alone.push_back({rank});
  return alone;
}

RankList GroupOnAxis(const Topology& topology, std::string_view axis, int rank) {
  return topology.Has(axis) ? topology.CommList(axis, rank) : RankList{rank};
}

int IndexOnAxis(const Topology& topology, std::string_view axis, int64_t rank) {
  return topology.Has(axis) ? topology.Index(rank, axis) : 0;
}

/// All ranks with one data index.
RankList Replica(const Topology& topology, int data_index) {
  return topology.Has(kDataAxis) ? topology.AxisList(kDataAxis, data_index) : AllRanks(topology);
}

GridSizes SizesOf(const Topology& topology) {
  const auto size = [&](std::string_view axis) { return std::max(1, topology.Size(axis)); };
  return {.pipe = size(kPipeAxis), .data = size(kDataAxis), .model = size(kModelAxis)};
}

void Append(std::vector<RankList>& groups, const std::vector<RankList>& more) {
  groups.insert(groups.end(), more.begin(), more.end());
}

}  // namespace

Grid::Grid(Topology topology, int64_t rank)
    : topology_(std::move(topology)),
      rank_(topology_.CheckedRank(rank)),
      sizes_(SizesOf(topology_)),
      stage_id_(IndexOnAxis(topology_, kPipeAxis, rank_)),
      data_parallel_id_(IndexOnAxis(topology_, kDataAxis, rank_)),
      model_parallel_id_(IndexOnAxis(topology_, kModelAxis, rank_)),
      groups_{.pipe = GroupOnAxis(topology_, kPipeAxis, rank_),
              .data = GroupOnAxis(topology_, kDataAxis, rank_),
              .slice = GroupOnAxis(topology_, kModelAxis, rank_),
              .model = Replica(topology_, data_parallel_id_)} {}

int Grid::StageToGlobal(int64_t stage, const Coordinates& overrides) const {
  if (overrides.contains(kPipeAxis)) {
    throw ConfigError("the stage is the index on the axis \"pipe\"; it cannot be given twice");
  }
  if (stage < 0 || stage >= sizes_.pipe) {
    throw ConfigError(Str("this grid has the stages 0 to ", sizes_.pipe - 1, ", got ", stage));
  }
  Coordinates coordinates = topology_.Coord(rank_);
  for (const auto& [axis, index] : overrides) coordinates[axis] = index;
  if (topology_.Has(kPipeAxis)) coordinates[std::string(kPipeAxis)] = stage;
  return topology_.Rank(coordinates);
}

std::vector<RankList> Grid::P2pGroups() const {
  std::vector<RankList> pairs(static_cast<size_t>(topology_.world_size()));
  for (const RankList& pipeline : GroupsOnAxis(topology_, kPipeAxis)) {
    for (size_t stage = 0; stage < pipeline.size(); ++stage) {
      const int next = pipeline[(stage + 1) % pipeline.size()];
      pairs[pipeline[stage]] = {pipeline[stage], next};
    }
  }
  return pairs;
}

std::vector<RankList> Grid::Created() const {
  std::vector<RankList> groups;
  for (int index = 0; index < sizes_.data; ++index) groups.push_back(Replica(topology_, index));
  for (std::string_view axis : {kDataAxis, kPipeAxis, kModelAxis}) {
    Append(groups, GroupsOnAxis(topology_, axis));
  }
  return groups;
}

int Grid::model_parallel_rank() const {
  const auto place = std::find(groups_.model.begin(), groups_.model.end(), rank_);
  return static_cast<int>(place - groups_.model.begin());
}

}  // namespace strata
