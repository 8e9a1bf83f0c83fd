// Totals: the numbers of one run that every rank gets to know. One all-reduce carries them all.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/comm/transport.h"

namespace strata {

/// Before the reduction each rank fills in what it has and leaves the rest zero; adding zeros
/// changes no bits, so afterwards every rank has the same bits, whoever had them.
struct Totals {
  std::vector<double> loss_sums;    ///< of every global micro-batch of the run
  std::vector<double> weights;      ///< likewise
  std::vector<double> part_sums;    ///< likewise, kMostLossParts each; empty: the loss has no parts
  std::vector<double> squares;      ///< of every chunk of the model's gradient (ParameterTable)
  std::vector<double> peak_memory;  ///< bytes of every rank
  std::vector<double> data_seconds;  ///< likewise, that it took to get its data
  std::vector<double> busy_seconds;  ///< likewise, that it computed and waited for nothing
  std::vector<double> row_seconds;   ///< likewise, from the row's beginning to here
  /// Likewise, of each of its stages forward and backward; empty: nobody wants to know.
  std::vector<double> stage_seconds;
  /// Likewise: of the time that it computed, the share in which it had its core; 0 = nobody knows.
  std::vector<double> processor_share;
  // Likewise, of all ranks together:
  double clear_seconds = 0;   ///< making gradients zero
  double norm_seconds = 0;    ///< the gradients' sum of squares
  double update_seconds = 0;  ///< the optimizers, in the step before
  double samples = 0;
  double correct = 0;     ///< labels met
  double counted = 0;     ///< labels counted
  double has_parts = 0;   ///< ranks whose losses had parts
  double lr_factor = 0;   ///< asked for by rank 0 alone: a schedule may be a user's function
  double recut = 0;       ///< whether rank 0 wants layers to move behind this step
  double stop = 0;        ///< ranks that were asked to end after this step, or run of an evaluation
  double save = 0;        ///< ranks that were asked to save it
  double loss_scale = 1;  ///< of the gradients, as all ranks know it before

  Totals(int micro_batches, int64_t chunks, int ranks)
      : loss_sums(micro_batches),
        weights(micro_batches),
        squares(chunks),
        peak_memory(ranks),
        data_seconds(ranks),
        busy_seconds(ranks),
        row_seconds(ranks) {}

  void AllReduce(Transport& transport);

  /// Sums in the order of micro-batches or layers, so that the bits do not depend on who had what.
  double weight() const;
  double mean_loss() const;
  /// Of a part of the loss, by its place.
  double part_sum(size_t part) const;
  /// The share of the longest row in which the mean rank did not compute: the bubble.
  double idle_share() const;
  /// Whether the losses and all gradients are finite. Squares of floats are finite in double, so
  /// the norm tells of all gradients.
  bool are_finite() const;
  /// What the gradients are to be divided by: the weight, and what the loss was scaled by.
  double divisor() const;
  /// Of the gradients divided so.
  double grad_norm() const;
};

}  // namespace strata
