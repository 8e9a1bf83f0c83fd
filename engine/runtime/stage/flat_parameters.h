// FlatParameters: lays out the parameters of a stage and their gradients in memory.
//
//   group 0 values     | 0.weight ...... | 0.bias, padding | 3.weight ...... | ...
//   group 0 gradients  | 0.weight ...... | 0.bias, padding | 3.weight ...... | ...
//
// There is one buffer of values and one of gradients per optimizer group and dtype. So one call of
// a fused optimizer updates a whole buffer, and weight gradients are accumulated in place. Every
// parameter starts at a multiple of kPadding elements: the bits of an update depend on a
// parameter's position in the vector loop, and must not depend on the cuts (libtorch notes, "Fused
// optimizers"). The padding is zero and stays zero under every optimizer.
//
// If layers compute in another type than the parameters are stored in (half precision), each buffer
// has a copy in that type, which is refreshed once per run, and layers see views of the copy.
// Gradients are accumulated in the stored type. Norm layers, and all layers if both types are
// equal, see the parameters themselves.
//
//   group 0 copy       | 0.weight ...... | 0.bias, padding | 3.weight ...... | ...
//
// Gradients lie in blocks. A block is a whole buffer, unless they come late (zero = 2): then it is
// some neighbouring parameters whose gradients get memory when a backward first adds to one of
// them, and lose it when their sum over the replicas is done (gradient_reducer.h).
//
// If several layers of the stage share a parameter, only the first has a place in a buffer. The
// others get views of its value and gradients of their own, outside the buffers.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/tensors/late_memory.h"
#include "engine/layers/kernels/row_product.h"
#include "engine/layers/packed_weight.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// A copy of values in the type that layers compute in.
struct ValueCopy {
  at::Tensor values;
  /// True if the optimizer has written the copy together with the values. RefreshCopies() then
  /// leaves it as it is, once.
  bool is_fresh = false;
};

/// The values and gradients that one optimizer call updates.
struct FlatBuffer {
  int group = -1;        ///< the optimizer group, as FindParameterGroup() counts
  at::Tensor values;     ///< one dim
  at::Tensor gradients;  ///< of the same size and dtype; undefined if they come late
  std::shared_ptr<ValueCopy> copy =
      nullptr;  ///< null: layers see the values, or only a part is here
};

/// The gradients of some neighbouring parameters of a buffer.
struct GradientBlock {
  size_t buffer = 0;
  int64_t begin = 0, end = 0;  ///< elements of the buffer
  at::Tensor gradients = {};   ///< one dim
  // Null unless gradients come late:
  std::shared_ptr<LateMemory> memory = nullptr;  ///< of `gradients`
  /// The sums of this replica's share of the block; null if the share has nothing of it. The
  /// reducer sets it, and it is dropped when the next step begins.
  std::shared_ptr<LateMemory> share = nullptr;
  bool is_summed = false;  ///< its sum has started in this step; nobody may add to it any more
};

/// One parameter of the stage and its place in memory.
struct PlacedParameter {
  int layer = 0;
  std::string path;     ///< "3.weight"
  at::Tensor value;     ///< a view of a flat buffer unless frozen
  at::Tensor leaf;      ///< the tensor that the layer sees: the value, or its copy
  at::Tensor gradient;  ///< undefined for a frozen parameter
  /// The buffer of which `value` and `gradient` are views; -1 for a frozen parameter and for a
  /// later use of a tied one.
  int buffer = -1;
  int64_t offset = 0;               ///< its first element in the buffer
  std::string tie;                  ///< TieName(); "" = not tied
  bool counted = true;              ///< false if another stage or layer counts this tied parameter
  std::optional<Share> share = {};  ///< the part of the whole that the rank has, see Parameter
  bool partial_grad = false;        ///< see Parameter
  std::shared_ptr<PackedWeight> packed = nullptr;  ///< see Parameter; then `value` is float32
};

/// The types of a stage's parameters. They do not apply to parameters with Parameter::keeps_type.
struct ParameterTypes {
  at::ScalarType stored = at::kFloat;  ///< also of the gradients
  /// The type that layers see. If it differs from `stored`, they see copies.
  at::ScalarType compute = at::kFloat;
};

/// Returns the optimizer group of a layer's parameter.
using GroupOf = std::function<int(int layer, const std::string& parameter)>;

class FlatParameters {
 public:
  /// Alignment of parameters in elements; 64 bytes of fp32. A vector loop takes 16 floats at once
  /// (one register of AVX-512, two of AVX2), and a scalar loop takes what remains at the end of the
  /// buffer; the two round differently. A parameter that begins at a multiple of 16 is cut into the
  /// same vectors whatever lies before it in the buffer, so wherever the layers are cut. The zeros
  /// behind it fill its last vector, so that no element is left to the scalar loop.
  static constexpr int64_t kPadding = 16;
  /// In elements. Smaller gradients are zeroed together with their surroundings, which is cheaper
  /// than tracking each of them as stale.
  static constexpr int64_t kLeastStale = 1 << 14;

  /// Moves every parameter and buffer of the layers to `device` and the trainable parameters into
  /// flat buffers, points the layers at them or at their copies, and calls OnBound() of each layer.
  /// `block_bytes`: 0, or gradients come late, in blocks of whole parameters of at least so many
  /// bytes.
  FlatParameters(std::vector<StageLayer>& layers, const GroupOf& group_of, at::Device device,
                 const ParameterTypes& types = {}, int64_t block_bytes = 0);

  /// All parameters, in the order of layers.
  const std::vector<PlacedParameter>& parameters() const { return parameters_; }
  const std::vector<FlatBuffer>& buffers() const { return buffers_; }
  /// In the order of buffers, and of elements; together they cover all buffers.
  std::vector<GradientBlock>& blocks() { return blocks_; }
  const std::vector<GradientBlock>& blocks() const { return blocks_; }
  /// The floating-point buffers of the layers (not parameters), in the order of layers.
  const std::vector<at::Tensor>& state() const { return state_; }
  /// Starts a step: zeroes the gradients, or marks them stale if the first product of the step
  /// overwrites them. Gradients that come late lose their memory.
  void ClearGradients();
  /// Zeroes the gradients that are still stale, of the layers from `layer` on. Call it after the
  /// last product of these layers and before anything reads their gradients.
  void FinishGradients(int layer = 0);
  const std::shared_ptr<StaleGradients>& stale() const { return stale_; }
  /// Refreshes the copies that layers compute with. Call it after any change of values and before
  /// the next forward.
  void RefreshCopies();
  /// Says that values were changed by other code than the optimizer.
  void MarkCopiesStale();

 private:
  struct Copy {
    at::Tensor original;
    std::shared_ptr<ValueCopy> copy;
  };
  /// A gradient that the first matrix product of a step overwrites instead of adding to it
  /// (Parameter::only_products).
  struct Product {
    int layer;
    at::Tensor gradient;
    size_t block;
  };
  void AddBlocks(int64_t block_bytes);
  void AddGradients(std::vector<StageLayer>& layers, int64_t block_bytes);
  void ClearBlock(size_t block);
  /// Returns what layers see of `original` if they compute in `type`: itself, or a new copy.
  at::Tensor InType(const at::Tensor& original, at::ScalarType type);
  void ShareFirstUse(Parameter& parameter, PlacedParameter& placed);

  std::vector<PlacedParameter> parameters_;
  std::vector<FlatBuffer> buffers_;
  std::vector<at::Tensor> state_;
  std::vector<GradientBlock> blocks_;
  // Zeroed when a step begins, or when their block gets memory: by block, and at last those that
  // are in no block.
  std::vector<std::vector<at::Tensor>> added_;
  std::vector<Product> products_;  // marked stale at the same time
  std::shared_ptr<StaleGradients> stale_ = std::make_shared<StaleGradients>();
  std::vector<Copy> copies_;  // of flat buffers and of frozen parameters
};

}  // namespace strata
