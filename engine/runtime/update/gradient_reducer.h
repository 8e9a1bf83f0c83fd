// GradientReducer: sums the gradients of one stage over its replicas, the ranks that hold the same
// stage of other pipelines, and divides the update among them.
//
// Each replica has a share of every flat buffer. It computes the sum of squares of its share for
// the norm. With ZeRO-1 it also is the only one that keeps the optimizer's state of its share and
// updates it:
//
//   zero = 0   gradients: all-reduce                              update of everything
//   zero = 1   gradients: reduce-scatter to shares, update of the share, values: all-gather
//
// Gradients are summed in pieces, those of the last layers first, as a backward completes them.
//
// Over links (group.h) both variants give the same bits, because each element is summed in
// ascending order of replicas. A stage without replicas has one share: everything.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/group.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// Computes the bounds of the replicas' shares of flat buffer `buffer`: replicas + 1 numbers.
/// Shares are as equal as possible, but they begin at a parameter or at a chunk of its squares
/// (reductions.h), so that the norm has the same bits for any number of replicas.
std::vector<int64_t> ShareBounds(const FlatParameters& parameters, size_t buffer, int replicas);

/// The part of one parameter that lies in this replica's share.
struct ParameterShare {
  size_t parameter = 0;  ///< index in FlatParameters::parameters()
  int64_t begin = 0;     ///< its first element; a multiple of kSquareChunk
  at::Tensor gradient;   ///< one dim
};

class GradientReducer {
 public:
  /// Gradients are summed in pieces of this many bytes, which limits the memory of the collectives.
  static constexpr int64_t kBucketBytes = 16 << 20;

  /// `replicas`: null for a stage that has none. `travels`: the type in which gradients are sent
  /// and added. `parameters` and `replicas` must outlive the reducer.
  GradientReducer(int stage, FlatParameters& parameters, Group* replicas, bool zero1,
                  at::ScalarType travels = at::kFloat);

  /// Starts the sums of those pieces that hold only gradients of layers from `layer` on. Pieces
  /// with ties, and with gradients that the model axis sums first, are left to Start().
  void StartFrom(int layer);
  /// REDUCE_GRAD: starts the sums of all remaining pieces and returns at once.
  void Start();
  /// Waits until the sums are complete. With ZeRO-1 only this replica's shares are valid then.
  void Await(Progress& progress);

  /// The buffers that this replica's optimizer updates: with ZeRO-1 its shares, else all.
  std::vector<FlatBuffer> updated() const;
  /// This replica's shares of all parameters, in the order of parameters.
  std::vector<ParameterShare> shares() const;

  /// With ZeRO-1, gathers the shares of all replicas: the updated values, or the summed gradients.
  /// Does nothing otherwise, because every replica has all of them.
  void GatherValues(Progress& progress);
  void GatherGradients(Progress& progress);
  /// Replaces the floating-point buffers of the layers (BatchNorm's running statistics) by their
  /// mean over the replicas, so that all replicas evaluate alike.
  void AverageState(Progress& progress);

 private:
  /// The part of a buffer that is summed by one collective.
  struct Piece {
    size_t buffer = 0;
    int64_t begin = 0, end = 0;
    /// The first layer with gradients in the piece; -1 if they are not complete before Start().
    int first_layer = 0;
  };
  /// A sum in progress.
  struct Sum {
    std::shared_ptr<Pending> pending;
    at::Tensor travelled;  ///< where the collective writes
    at::Tensor result;     ///< where the sum belongs: the same tensor, or one of another type
  };

  void AddPieces(size_t buffer);
  void StartSum(const Piece& piece);
  void StartSum(Collective collective);
  at::Tensor Share(const at::Tensor& flat, size_t buffer) const;
  void Gather(at::Tensor FlatBuffer::*which, const Doing& doing, Progress& progress);

  FlatParameters& parameters_;
  Group* const replicas_;
  const bool zero1_;
  const at::ScalarType travels_;
  const Doing reduces_, gathers_, averages_;  // for reports
  std::vector<std::vector<int64_t>> bounds_;  // one list per buffer
  std::vector<Piece> pieces_;                 // in the order in which they start
  size_t started_ = 0;                        // number of pieces that were started
  std::vector<Sum> sums_;
};

}  // namespace strata
