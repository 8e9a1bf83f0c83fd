// Crossings: operators that turn a whole tensor into this rank's part of it on the model axis, or
// back. Their gradients go the other way.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>

#include "engine/layers/axis/axis_comm.h"
#include "engine/layers/layer_spec.h"

namespace strata {

/// What a crossing does. "Whole" means that every rank has the same tensor. The names in brackets
/// are those of Megatron-LM.
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

/// Applies the crossing to `x`, along `dim` (which may be negative); differentiable. With a null
/// axis it returns `x`. Throws ConfigError when the number of ranks does not divide the dim.
at::Tensor Cross(const at::Tensor& x, Crossing how, const std::shared_ptr<AxisComm>& axis,
                 int64_t dim);

/// The crossings at the input and the output of a layer, or of a block inside a layer.
struct Ends {
  std::shared_ptr<AxisComm> axis = nullptr;  ///< null: no crossings
  Crossing enter = Crossing::kNone;
  Crossing leave = Crossing::kNone;
  int64_t dim = -1;

  at::Tensor Enter(const at::Tensor& x) const { return Cross(x, enter, axis, dim); }
  at::Tensor Leave(const at::Tensor& y) const { return Cross(y, leave, axis, dim); }
  /// True when the output is summed over ranks. Then a bias must be added after the sum, once.
  bool sums() const {
    return axis && (leave == Crossing::kReduce || leave == Crossing::kReduceScatter);
  }
  int ranks() const { return axis ? axis->size() : 1; }
};

/// The ends of a layer that works on parts along `dim`. Where the layer before or after it works on
/// whole tensors (LayerSpec::input_shard, output_shard), its input is scattered or its output
/// gathered.
Ends PartEnds(const LayerSpec& spec, std::shared_ptr<AxisComm> axis, int64_t dim);

/// Which part of a whole tensor this rank holds: its equal part along `dim`.
struct Part {
  const AxisComm* axis = nullptr;  ///< null: the whole tensor
  int64_t dim = -1;

  /// Returns the sizes of the whole tensor, given the sizes of a part.
  std::vector<int64_t> WholeSizes(at::IntArrayRef part_sizes) const;
  /// This rank's part of `whole`.
  at::Tensor Of(const at::Tensor& whole) const;
};

/// The share of rank `rank` of a whole parameter, in new memory.
at::Tensor CopyShare(const at::Tensor& whole, const Share& share, int rank, int ranks);
/// Collective: the whole parameter, made of the shares of all ranks.
at::Tensor JoinShares(const at::Tensor& own, const Share& share, AxisComm& axis);

}  // namespace strata
