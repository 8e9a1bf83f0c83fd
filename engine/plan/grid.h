// Grid: what one rank of a Topology is and which groups it belongs to, under DeepSpeed's names
// (PipelineParallelGrid, and the methods that it offers as an `mpu`).
#pragma once

#include <cstdint>
#include <vector>

#include "engine/plan/topology.h"

namespace strata {

/// The sizes of the three axes that the engine knows; 1 where the topology lacks one.
struct GridSizes {
  int pipe = 1;
  int data = 1;
  int model = 1;
};

/// The groups that a rank is in. On an axis that the topology lacks a rank is alone.
struct GridGroups {
  RankList pipe;   ///< its pipeline: ranks that differ in the stage only
  RankList data;   ///< its replicas: ranks that differ on the data axis only
  RankList slice;  ///< ranks that differ on the model axis only
  RankList model;  ///< all ranks of its data index: every stage and slice of one replica
};

/// An immutable view of a topology from one rank. The sizes, ids and own groups cost little in any
/// world; P2pGroups() and Created() list the whole world at each call.
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

  /// The rank that runs `stage` and else has this rank's coordinates, except for those given in
  /// `overrides` ({{"data", 1}}: the same stage of another replica). Throws ConfigError for a stage
  /// or index outside the grid, for an unknown axis and for "pipe" among the overrides.
  int StageToGlobal(int64_t stage, const Coordinates& overrides = {}) const;

  /// For each rank of the world, ascending, the pair {rank, rank of the next stage of its
  /// pipeline}; the last stage's next is the first.
  std::vector<RankList> P2pGroups() const;

  /// Every group of the world, in the one order in which all ranks create them, since a
  /// communicator comes to be only when its members ask for it in the same order: those of one data
  /// index, data, pipe, slice. The same on every rank.
  std::vector<RankList> Created() const;

  // DeepSpeed's `mpu`. Careful with its words: "model parallel" means the whole replica (pipe x
  // model) in these four, "slice parallel" the model axis.
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
