// GradientReducer: what one stage does with its replicas, the ranks that hold the same stage of
// another pipeline. It sums gradients over them, and divides work among them.
//
// Each replica has a share of every flat buffer. It sums the squares of its share for the norm, and
// with ZeRO-1 it alone keeps the optimizer's state of its share and updates it:
//
//   zero = 0   gradients: all-reduce                              update of everything
//   zero = 1   gradients: reduce-scatter to shares, update of the share, values: all-gather
//
// Sums travel in pieces, the last layers' first, as a backward completes them.
//
// Over links (group.h) both give the same bits, as each element is summed in ascending order of
// replicas. A stage without replicas has one share, the whole.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/comm/group.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

/// Which replica looks after which elements of flat buffer `buffer`: replicas + 1 bounds. Shares
/// are as equal as they can be when they begin at a parameter or at a chunk of its squares
/// (reductions.h), so that the norm has the same bits for any number of replicas.
std::vector<int64_t> ShareBounds(const FlatParameters& parameters, size_t buffer, int replicas);

/// What of one parameter lies in this replica's share.
struct ParameterShare {
  size_t parameter = 0;  ///< of FlatParameters::parameters()
  int64_t begin = 0;     ///< its first element; a multiple of kSquareChunk
  at::Tensor gradient;   ///< one dim
};

class GradientReducer {
 public:
  /// Gradients travel in pieces of so many bytes, so that little memory holds what has come.
  static constexpr int64_t kBucketBytes = 16 << 20;

  /// `replicas`: null for a stage that has none. `travels`: the type in which gradients are sent
  /// and added. Everything must outlive the reducer.
  GradientReducer(int stage, FlatParameters& parameters, Group* replicas, bool zero1,
                  at::ScalarType travels = at::kFloat);

  /// Starts the sums of the pieces that hold gradients of layers from `layer` on and of no others.
  /// Pieces of ties, and of what the model axis adds up first, are left to Start().
  void StartFrom(int layer);
  /// REDUCE_GRAD: starts the sums of all other pieces and returns at once.
  void Start();
  /// Returns when the sums are there: with ZeRO-1 only those of this replica's shares.
  void Await(Progress& progress);

  /// What this replica's optimizer updates: with ZeRO-1 its shares, else the buffers.
  std::vector<FlatBuffer> updated() const;
  /// In the order of parameters.
  std::vector<ParameterShare> shares() const;

  /// With ZeRO-1, gathers the shares of all replicas: values after the update, or summed gradients.
  /// Else does nothing, as every replica has all of them.
  void GatherValues(Progress& progress);
  void GatherGradients(Progress& progress);
  /// Makes the floating-point state of the layers that is no parameter (BatchNorm's running
  /// statistics) the mean over the replicas, so that all of them evaluate alike.
  void AverageState(Progress& progress);

 private:
  /// What of a buffer travels at once.
  struct Piece {
    size_t buffer = 0;
    int64_t begin = 0, end = 0;
    int first_layer = 0;  ///< of which it holds something; -1 = it is not complete before Start()
  };
  /// A sum that goes on.
  struct Sum {
    std::shared_ptr<Pending> pending;
    at::Tensor travelled;  ///< where it will be
    at::Tensor result;     ///< where it belongs: the same, or of another type
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
  std::vector<std::vector<int64_t>> bounds_;  // of every buffer
  std::vector<Piece> pieces_;                 // in the order in which they start
  size_t started_ = 0;                        // of the pieces
  std::vector<Sum> sums_;
};

}  // namespace strata
