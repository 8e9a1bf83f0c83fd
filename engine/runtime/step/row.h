// Row: one rank's row of a lowered and checked program, with everything looked up that does not
// change between runs. Torch-free.
#pragma once

#include <vector>

#include "engine/runtime/watch/progress.h"
#include "engine/schedule/program.h"

namespace strata {

/// The channels of links: activations go from stage to stage on channel 0, gradients back on
/// channel 1.
inline constexpr int kActivations = 0;
inline constexpr int kGradients = 1;

struct Instruction {
  schedule::Action action;  ///< a compute action, a send, a receive, a reduction or a step
  Doing doing;
  /// For kForward, kInputGrad, kBackward and receives: the index in Row::inbound of the link on
  /// which their message comes; -1 if it comes from this rank.
  int inbound = -1;
  bool is_recomputed = false;  ///< kForward: a kRecompute follows before the backward
  bool is_last_step = false;   ///< kStep: the last one of the rank's row
  /// kBackward: all weight gradients of the stage are complete after it.
  bool completes = false;
  bool is_last_tied = false;  ///< kReduceTied: the last one of the rank's row
};

/// All messages of one link to this rank, in the order in which they arrive.
struct Inbound {
  struct Message {
    int stage = 0;  ///< the receiving stage
    int micro_batch = 0;
  };
  int pipe_rank = 0;  ///< the sender
  int channel = kActivations;
  std::vector<Message> messages;
};

struct Row {
  bool is_training = true;
  std::vector<int> stage_ranks;  ///< the pipe rank of every stage
  std::vector<Instruction> instructions;
  std::vector<Inbound> inbound;
  /// For each stage: how many micro-batches may have a buffer at a time, for each kind of message
  /// (schedule::StageBuffers()).
  std::vector<int> slots;
};

/// Compiles the row of a rank. REQUIRES: the program is lowered and checked.
Row CompileRow(const schedule::Program& program, int pipe_rank);

/// The reductions and the step of a row, for a replica that has no data in this run.
Row WithoutMicroBatches(Row row);

/// Returns `row`, made for another number of micro-batches, with its REDUCE_GRADs in the order of
/// `planned`: each moves behind those that come before it in that order. Replicas with different
/// numbers of micro-batches in a run thus start their sums in the same order.
Row WithReductionsAs(const Row& planned, Row row);

}  // namespace strata
