// Row: one rank's row of a lowered, checked program, with everything looked up that does not
// change between runs. Torch-free.
#pragma once

#include <vector>

#include "engine/runtime/watch/progress.h"
#include "engine/schedule/program.h"

namespace strata {

/// Activations go from stage to stage on channel 0 of the links, gradients back on channel 1.
inline constexpr int kActivations = 0;
inline constexpr int kGradients = 1;

struct Instruction {
  schedule::Action action;  ///< compute of one micro-batch, a send, a receive, a reduction, a step
  Doing doing;
  int inbound = -1;            ///< kForward, kInputGrad, kBackward, receives: what they wait for
  bool is_recomputed = false;  ///< kForward: a kRecompute comes before the backward
  bool is_last_step = false;   ///< kStep: all stages of the rank are ready for it
  bool completes = false;      ///< kBackward: all weight gradients of the stage are there then
  bool is_last_tied = false;   ///< kReduceTied: all tied stages of the rank are ready for it
};

/// All messages of one link to this rank, in the order in which they come.
struct Inbound {
  struct Message {
    int stage = 0;  ///< of this rank
    int micro_batch = 0;
  };
  int pipe_rank = 0;  ///< who sends
  int channel = kActivations;
  std::vector<Message> messages;
};

struct Row {
  bool is_training = true;
  std::vector<int> stage_ranks;  ///< the pipe rank of every stage
  std::vector<Instruction> instructions;
  std::vector<Inbound> inbound;
  /// Per stage: how many micro-batches may have a buffer of one kind (schedule::StageBuffers()).
  std::vector<int> slots;
};

/// REQUIRES: lowered and checked.
Row CompileRow(const schedule::Program& program, int pipe_rank);

/// What is left of a row for a replica that has no data in this run: reductions and the step.
Row WithoutMicroBatches(Row row);

/// A row for another number of micro-batches, with its REDUCE_GRADs in the order of the plan's:
/// each comes as soon as those before it in that order. Replicas that have different numbers in a
/// run then begin their sums in one order.
Row WithReductionsAs(const Row& planned, Row row);

}  // namespace strata
