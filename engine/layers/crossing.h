// Crossings: where a tensor goes over from whole to shared among the ranks of the model axis, or
// back, and its gradient the other way.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

#include "engine/layers/axis_comm.h"
#include "engine/spec/layer_spec.h"

namespace strata {

/// The names in brackets are Megatron-LM's. "Whole" means that every rank has the same tensor.
///
///                    forward                    backward
enum class Crossing {
  kNone,          ///< nothing                    nothing
  kCopy,          ///< nothing (whole)            sum of all ranks            [copy to region]
  kReduce,        ///< sum of all ranks           nothing (whole)             [reduce from region]
  kGather,        ///< all parts along dim        own part (whole)            [gather from region]
  kScatter,       ///< own part (whole)           all parts along dim         [scatter to region]
  kGatherSummed,  ///< all parts along dim        own part of the sum         [gather from sequence]
  kReduceScatter,  ///< own part of the sum        all parts along dim         [reduce-scatter]
};

/// `x` on the other side, with the graph. `dim` may be negative. A null axis changes nothing.
/// Throws ConfigError where the ranks do not divide the dim.
at::Tensor Cross(const at::Tensor& x, Crossing how, const std::shared_ptr<AxisComm>& axis,
                 int64_t dim);

/// How a layer, or a block inside one, goes over to the ranks' shares and back.
struct Ends {
  std::shared_ptr<AxisComm> axis = nullptr;  ///< null: nothing is shared
  Crossing enter = Crossing::kNone;
  Crossing leave = Crossing::kNone;
  int64_t dim = -1;

  at::Tensor Enter(const at::Tensor& x) const { return Cross(x, enter, axis, dim); }
  at::Tensor Leave(const at::Tensor& y) const { return Cross(y, leave, axis, dim); }
  /// What leaves is a sum over ranks: what belongs to it once (a bias) is added behind.
  bool sums() const {
    return axis && (leave == Crossing::kReduce || leave == Crossing::kReduceScatter);
  }
  int ranks() const { return axis ? axis->size() : 1; }
};

/// The ends of a layer that works on parts along `dim`: it takes and gives the whole where its
/// neighbours do (LayerSpec::takes, gives).
Ends PartEnds(const LayerSpec& spec, std::shared_ptr<AxisComm> axis, int64_t dim);

/// Which part of a whole tensor somebody holds.
struct Part {
  const AxisComm* axis = nullptr;  ///< null: the whole
  int64_t dim = -1;

  /// The whole's sizes, given the part's; and the part of a tensor of those sizes.
  std::vector<int64_t> WholeSizes(at::IntArrayRef part_sizes) const;
  at::Tensor Of(const at::Tensor& whole) const;
};

/// A parameter's values of one rank, as fresh memory.
at::Tensor TakeShare(const at::Tensor& whole, const Share& share, int rank, int ranks);
/// Collective: the whole, from the share of every rank.
at::Tensor JoinShares(const at::Tensor& own, const Share& share, AxisComm& axis);

}  // namespace strata
