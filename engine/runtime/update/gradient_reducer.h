// GradientReducer: sums the gradients of one stage over its replicas, the ranks that hold the same
// stage of other pipelines, and divides the update among them.
//
// Each replica has a share of every flat buffer. It computes the sum of squares of its share for
// the norm. With ZeRO it also is the only one that keeps the optimizer's state of its share and
// updates it; with ZeRO-2 it keeps only its share of the summed gradients, too:
//
//   zero = 0   gradients: all-reduce                              update of everything
//   zero = 1   gradients: reduce-scatter to shares, update of the share, values: all-gather
//   zero = 2   as 1; the gradients of a block (flat_parameters.h) exist from the first backward
//              that adds to them until their sum is done, and then only the share of the sum
//
// Gradients are summed in pieces, those of the last layers first, as a backward completes them.
//
// Over links (group.h) all variants give the same bits, because each element is summed in
// ascending order of replicas. A stage without replicas has one share: everything.
//
// What zero = 2 can save. Its bits are those of zero = 0: a replica adds up its own micro-batches,
// and the sums of R replicas are added afterwards. Float addition is not associative, so between
// two micro-batches R partial sums of all N elements must exist somewhere on R ranks, which is N on
// each: reducing every micro-batch into shares would change the bits, and owners with one
// accumulator per replica would save nothing. So the unit that can be saved is what no replica is
// accumulating. A rank needs, for its stages s with N_s bytes of gradients,
//
//   sum of N_s, for s between its first and its last backward of the step
//   + sum of N_s / R, for s whose sums are done
//   + two blocks while the last backward of a stage runs: one fills up, one is being summed
//
// With one micro-batch a step that is N / R and two blocks. With several, one stage per rank has N,
// as with zero = 1, until its last backward; with several stages per rank, a schedule that ends
// with one stage before it begins the next (looped_bfs) has about one N_s. The traffic is that of
// zero = 1: one reduce-scatter of the gradients and one all-gather of the values a step.
//
// To bound the memory, a rank waits for the sum of a block before the sum of the second next one.
// That cannot deadlock where all replicas run the same program, or have one stage on each rank.
// A caller whose replicas differ passes no Progress, and blocks then stay until Await().
#pragma once

#include <deque>
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

  /// `replicas`: null for a stage that has none. `shards`: ZeRO-1, or ZeRO-2 if the gradients of
  /// `parameters` come late. `travels`: the type in which gradients are sent and added.
  /// `parameters` and `replicas` must outlive the reducer.
  GradientReducer(int stage, FlatParameters& parameters, Group* replicas, bool shards,
                  at::ScalarType travels = at::kFloat);

  /// Starts the sums of those pieces that hold only gradients of layers from `layer` on. Pieces
  /// with ties, and with gradients that the model axis sums first, are left to Start(). With ZeRO-2
  /// and `progress`, waits for blocks as said above.
  void StartFrom(int layer, Progress* progress = nullptr);
  /// REDUCE_GRAD: starts the sums of all remaining pieces. Waits as StartFrom(), or not at all.
  void Start(Progress* progress = nullptr);
  /// Waits until the sums are complete. With ZeRO only this replica's shares are valid then.
  void Await(Progress& progress);

  /// The parts of buffers that this replica's optimizer updates: with ZeRO its shares, else all.
  std::vector<FlatBuffer> updated() const;
  /// This replica's shares of all parameters, in the order of parameters.
  std::vector<ParameterShare> shares() const;

  /// With ZeRO, gathers the shares of all replicas: the updated values, or the summed gradients.
  /// Does nothing otherwise, because every replica has all of them.
  void GatherValues(Progress& progress);
  void GatherGradients(Progress& progress);
  /// With ZeRO-2, frees what GatherGradients() gathered; the shares stay.
  void DropGathered();
  /// Replaces the floating-point buffers of the layers (BatchNorm's running statistics) by their
  /// mean over the replicas, so that all replicas evaluate alike.
  void AverageState(Progress& progress);

 private:
  /// The part of a block that is summed by one collective.
  struct Piece {
    size_t block = 0;
    int64_t begin = 0, end = 0;  ///< elements of the buffer
    bool ends_block = false;     ///< true for the last piece of a block that comes late
    /// The first layer with gradients in the piece; -1 if they are not complete before Start().
    int first_layer = 0;
  };
  /// A sum in progress.
  struct Sum {
    std::shared_ptr<Pending> pending;
    at::Tensor travelled;        ///< where the collective writes
    at::Tensor result;           ///< where the sum belongs: the same tensor, or one of another type
    LateMemory* done = nullptr;  ///< what is not needed any more when the sum is done
  };
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };

  void AddPieces(size_t block);
  void AddShares();
  std::vector<int64_t> BoundsIn(const Piece& piece) const;
  Range ShareOf(const GradientBlock& block) const;
  at::Tensor GradientsOf(const GradientBlock& block, Range range) const;
  void StartSum(const Piece& piece);
  void StartSum(Collective collective, LateMemory* done);
  void FinishAllBut(size_t sums, Progress& progress);
  void Gather(const at::Tensor& whole, const std::vector<int64_t>& bounds, const at::Tensor& own);
  at::Tensor Share(const at::Tensor& whole, const std::vector<int64_t>& bounds) const;

  FlatParameters& parameters_;
  Group* const replicas_;
  const bool shards_;
  const at::ScalarType travels_;
  const Doing reduces_, gathers_, averages_;  // for reports
  std::vector<std::vector<int64_t>> bounds_;  // one list per buffer
  std::vector<Piece> pieces_;                 // in the order in which they start
  size_t started_ = 0;                        // number of pieces that were started
  std::deque<Sum> sums_;
};

}  // namespace strata
