// Totals: the numbers of one run that all ranks must know. One all-reduce sums them all.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/transport.h"

namespace strata {

/// Before the reduction each rank fills in its own numbers and leaves the others zero. Adding zeros
/// changes no bits, so afterwards all ranks have the same bits, whichever rank had a number.
struct Totals {
  std::vector<double> loss_sums;  ///< one per global micro-batch of the run
  std::vector<double> weights;    ///< one per global micro-batch of the run
  /// kMostLossParts per global micro-batch; empty if the loss has no parts.
  std::vector<double> part_sums;
  std::vector<double> squares;       ///< one per chunk of the model's gradient (ParameterTable)
  std::vector<double> peak_memory;   ///< one per rank, in bytes
  std::vector<double> data_seconds;  ///< one per rank: waiting for data
  std::vector<double> busy_seconds;  ///< one per rank: computing, without any waiting
  /// One per rank: from the beginning of the row until its last STEP.
  std::vector<double> row_seconds;
  /// For each rank, for each of its stages: forward and backward (stage_seconds.h). Empty if not
  /// asked for.
  std::vector<double> stage_seconds;
  /// One per rank: the share of its computing time in which it had its core; 0 if unknown.
  std::vector<double> processor_share;
  // Sums over all ranks:
  double clear_seconds = 0;   ///< zeroing the gradients
  double norm_seconds = 0;    ///< the sum of squares of the gradients
  double update_seconds = 0;  ///< the optimizers, in the previous step
  double samples = 0;
  double correct = 0;    ///< labels predicted correctly
  double counted = 0;    ///< labels that were counted
  double has_parts = 0;  ///< number of ranks whose losses had parts
  /// Set by rank 0 only, because a schedule may be a user's function.
  double lr_factor = 0;
  double recut = 0;  ///< 1 if rank 0 wants layers to move after this step
  /// Number of ranks that were asked to end after this step, or after this run of an evaluation.
  double stop = 0;
  double save = 0;  ///< number of ranks that were asked to save this step
  /// The scale of the loss in this run. It is not summed: all ranks know it.
  double loss_scale = 1;

  Totals(int micro_batches, int64_t chunks, int ranks)
      : loss_sums(micro_batches),
        weights(micro_batches),
        squares(chunks),
        peak_memory(ranks),
        data_seconds(ranks),
        busy_seconds(ranks),
        row_seconds(ranks) {}

  void AllReduce(Transport& transport);

  /// These sum in the order of micro-batches or of layers, so that the bits do not depend on which
  /// rank had a number.
  double weight() const;
  double mean_loss() const;
  /// The sum of the loss part with index `part`.
  double part_sum(size_t part) const;
  /// The share of the longest row in which the average rank did not compute: the bubble.
  double idle_share() const;
  /// True if the losses and all gradients are finite. Squares of floats are finite in double, so
  /// the norm is finite exactly if all gradients are.
  bool are_finite() const;
  /// The number by which gradients must be divided: the total weight times the scale of the loss.
  double divisor() const;
  /// The norm of the gradients after that division.
  double grad_norm() const;
};

}  // namespace strata
