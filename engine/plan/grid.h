// Grid: the indices of one rank of a Topology and the groups that it belongs to, with DeepSpeed's
// names (PipelineParallelGrid, and the methods that it offers as an `mpu`).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/topology.h"

namespace strata {

/// The sizes of the three axes that the engine knows; 1 if the topology does not have an axis.
struct GridSizes {
  int pipe = 1;
  int data = 1;
  int model = 1;
};

/// The groups that a rank is in. On an axis that the topology does not have, a rank is alone.
struct GridGroups {
  RankList pipe;   ///< its pipeline: the ranks that differ only in the stage
  RankList data;   ///< its replicas: the ranks that differ only on the data axis
  RankList slice;  ///< the ranks that differ only on the model axis
  RankList model;  ///< all ranks with its data index: every stage and slice of one replica
};

/// An immutable view of a topology from one rank. Sizes, ids and the rank's own groups are cheap in
/// a world of any size. P2pGroups() and Created() list the whole world at each call.
class Grid {
 public:
  /// Throws ConfigError unless 0 <= rank < topology.world_size().
  Grid(Topology topology, int64_t rank);

  const Topology& topology() const { return topology_; }
  int rank() const { return rank_; }
  const GridSizes& sizes() const { return sizes_; }
  const GridGroups& groups() const { return groups_; }

  int stage_id() const { return stage_id_; }                    ///< index on the pipe axis
  int data_parallel_id() const { return data_parallel_id_; }    ///< index on the data axis
  int model_parallel_id() const { return model_parallel_id_; }  ///< index on the model axis
  bool is_first_stage() const { return stage_id_ == 0; }
  bool is_last_stage() const { return stage_id_ == sizes_.pipe - 1; }

  /// The rank that runs `stage` and otherwise has this rank's coordinates, except for those in
  /// `overrides` ({{"data", 1}}: the same stage of another replica). Throws ConfigError for a stage
  /// or index outside the grid, an unknown axis, and "pipe" in the overrides.
  int StageToGlobal(int64_t stage, const Coordinates& overrides = {}) const;

  /// For each rank of the world, ascending, the pair {rank, rank of the next stage in its
  /// pipeline}. The next stage of the last one is the first.
  std::vector<RankList> P2pGroups() const;

  /// All groups of the world in the order in which all ranks must create them, since a communicator
  /// is opened only when its members ask for it in the same order. First the groups of one data
  /// index, then those of the data, pipe and model axes. The list is the same on every rank.
  std::vector<RankList> Created() const;

  // DeepSpeed's `mpu`. Its words differ: in these functions "model parallel" means the whole
  // replica (pipe x model), and "slice parallel" means the model axis.
  int pipe_parallel_rank() const { return stage_id_; }
  int pipe_parallel_world_size() const { return sizes_.pipe; }
  int data_parallel_rank() const { return data_parallel_id_; }
  int data_parallel_world_size() const { return sizes_.data; }
  int slice_parallel_rank() const { return model_parallel_id_; }
  int slice_parallel_world_size() const { return sizes_.model; }
  /// The place of this rank in groups().model.
  int model_parallel_rank() const;
  int model_parallel_world_size() const { return static_cast<int>(groups_.model.size()); }
  int global_rank() const { return rank_; }

 private:
  Topology topology_;
  int rank_;
  GridSizes sizes_;
  int stage_id_;
  int data_parallel_id_;
  int model_parallel_id_;
  GridGroups groups_;
};

}  // namespace strata
