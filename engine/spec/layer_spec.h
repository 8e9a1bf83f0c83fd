// LayerSpec: one layer as the user declared it, before anything is built. Plain data.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

/// How the M ranks of the model axis share a tensor: `dim` is `blocks` equal blocks, and rank r
/// has the r-th of M equal parts of each. (Attention's in_proj_weight is three blocks of rows:
/// queries, keys, values.)
struct Share {
  int dim = 0;
  int blocks = 1;
  bool operator==(const Share&) const = default;
};

/// A parameter or buffer that a layer will own.
struct ParameterSpec {
  std::string name;            ///< within the layer: "weight", "self_attn.in_proj_weight"
  std::vector<int64_t> shape;  ///< of the whole, however many ranks share it
  DType dtype = DType::kFloat32;
  bool buffer =
      false;  ///< state without gradient (BatchNorm's running_mean); not counted as parameter
  std::optional<Share> share = {};  ///< none: every rank of the model axis has the whole

  int64_t elements() const { return TensorSpec{shape, dtype}.elements(); }
  bool operator==(const ParameterSpec&) const = default;
};

/// Of a tensor between two layers: the dim of which each rank of the model axis has its part (-1 is
/// the last); none = every rank has the whole tensor.
using SharedDim = std::optional<int>;

/// A layer, a loss, or a container of layers. Made by MakeLayer() (layers.h), so its `args` are
/// complete and checked: every field of the layer's table is there, defaults included.
struct LayerSpec {
  std::string type;   ///< "Linear"; "function" for a Lua function; a user's own layer: its name
  std::string name;   ///< the layer's path in checkpoints and messages; "" = its index in the list
  std::string where;  ///< script position, "alexnet.lua:12"; "" when not from a script
  Value args;  ///< map: field -> value, in the table's order; a user's own layer: its arguments
  std::vector<LayerSpec> children;  ///< Sequential and Residual: what they hold

  // Lua's part; the ids find the functions in the state that made them.
  bool scripted = false;  ///< "function" or a user's own layer
  FunctionRef forward;    ///< scripted: function(x, ...) or function(self, x, ...)
  FunctionRef init;       ///< a user's own layer: function(self, ...)
  std::vector<ParameterSpec> script_parameters;  ///< a user's own layer: what init declared

  bool frozen = false;  ///< by the job's `freeze`: parameters get no gradient

  // strata.tied{"embed", layer, weight=, forward=}
  std::string tied_key;                                ///< "" = not tied
  std::vector<std::string> tied_weights = {"weight"};  ///< the parameters that are shared
  FunctionRef tied_forward;  ///< function(layer, x, ...) in place of the layer's own forward

  /// Whether a function of the script's is the layer's forward.
  bool has_scripted_forward() const { return scripted || !tied_forward.where.empty(); }

  // How the model axis shares its input and its output; decided by LayOut() (split.h) when a stage
  // is built, no part of the declaration.
  SharedDim takes;
  SharedDim gives;

  /// "Conv2d(3, 64, kernel_size=(11, 11), ...)", PyTorch's repr with the non-default fields.
  std::string ToString() const;
  /// The canonical form for digests and differences between ranks: type, name, args, functions
  /// (by place and digest), children.
  Value ToValue() const;
};

}  // namespace strata
