// LayerSpec: the declaration of one layer, loss or container, as plain data. engine/layers builds
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"
#include "engine/layers/packing.h"

namespace strata {

/// How the M ranks of the model axis share a tensor. The dim `dim` consists of `blocks` equal
/// blocks. Each block is cut into M equal parts, and rank r has part r of every block. (Attention's
/// in_proj_weight has three blocks of rows: queries, keys and values.)
struct Share {
  int dim = 0;
  int blocks = 1;
  bool operator==(const Share&) const = default;
};

/// A parameter or buffer that a layer will own.
struct ParameterSpec {
  std::string name;            ///< within the layer: "weight", "self_attn.in_proj_weight"
  std::vector<int64_t> shape;  ///< of the whole tensor, also when ranks share it
  DType dtype = DType::kFloat32;
  bool buffer =
      false;  ///< state without gradient (BatchNorm's running_mean); not counted as parameter
  std::optional<Share> share = {};   ///< none = every rank of the model axis has the whole tensor
  Packing packing = Packing::kNone;  ///< of a frozen weight that is held in few bits

  int64_t elements() const { return TensorSpec{shape, dtype}.elements(); }
  bool operator==(const ParameterSpec&) const = default;
};

/// How a tensor between two layers lies on the model axis. A dim: each rank has its part along this
/// dim (-1 = the last dim). None: every rank has the whole tensor.
using ShardDim = std::optional<int>;

/// Low-rank parts (LoRA, Hu et al., arXiv:2106.09685) beside weights of a layer's linear operators:
///
///   y = x W^T + b + (alpha / rank) B (A dropout(x)),  A (rank, in), B (out, rank)
///
/// The job's `adapt` sets it for the layers that it names (engine/job/adapt.h). From here shapes,
/// costs, saves and cuts follow as for other parameters: ParametersOf() lists A and B, and
/// BuildLayer() adds them (low_rank.h). It belongs to the layer that has the weights, never to a
/// container of it.
struct LowRankSpec {
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;                ///< the share of x's elements that are set to 0 in training
  std::vector<std::string> weights;  ///< names within the layer: "q_proj.weight"; empty = none
  /// Where the layer stands within the job's layer: "1.0.". It enters the seeds of A, so that equal
  /// layers inside one layer begin with different values.
  std::string path;

  bool Has(std::string_view weight) const;
  bool operator==(const LowRankSpec&) const = default;
};

/// Frozen weights of a layer's linear operators that are held in few bits; the job's `adapt` sets
/// it. It belongs to the layer that has the weights, as LowRankSpec does.
struct PackedSpec {
  Packing packing = Packing::kNone;
  std::vector<std::string> weights;  ///< names within the layer

  bool Has(std::string_view weight) const;
  bool operator==(const PackedSpec&) const = default;
};

/// The name of A or B for a weight, as the package PEFT has it: "q_proj.lora_A.weight" for
/// "q_proj.weight". A weight that is no layer's own keeps its name: "in_proj_weight.lora_A.weight".
std::string LowRankName(std::string_view weight, char matrix);

/// A layer, a loss, or a container of layers. MakeLayer() (layer_types.h) makes it, so its `args`
/// are complete and checked: every field of the layer's table is present, with defaults.
struct LayerSpec {
  std::string type;   ///< "Linear"; "function" for a Lua function; the name of a user's own layer
  std::string name;   ///< the layer's path in checkpoints and messages; "" = its index in the list
  std::string where;  ///< script position, "alexnet.lua:12"; "" when not from a script
  Value args;  ///< map: field -> value, in the table's order; a user's own layer: its arguments
  std::vector<LayerSpec> children;  ///< the layers inside a Sequential or Residual

  // For layers written in Lua. Functions are found by their ids in the Lua state that made them.
  bool scripted = false;  ///< "function" or a user's own layer
  FunctionRef forward;    ///< scripted: function(x, ...) or function(self, x, ...)
  FunctionRef init;       ///< a user's own layer: function(self, ...)
  std::vector<ParameterSpec> script_parameters;  ///< a user's own layer: what init declared

  bool frozen = false;  ///< in the job's `freeze`: the parameters get no gradient
  /// The names of single frozen parameters, if the layer is not `frozen` as a whole.
  std::vector<std::string> frozen_parameters = {};
  LowRankSpec low_rank = {};  ///< in the job's `adapt`
  PackedSpec packed = {};     ///< in the job's `adapt`

  // strata.tied{"embed", layer, weight=, forward=}
  std::string tied_key;                                ///< "" = not tied
  std::vector<std::string> tied_weights = {"weight"};  ///< the parameters that are shared
  FunctionRef tied_forward;  ///< function(layer, x, ...) that replaces the layer's own forward

  // The value of an argument.
  bool Bool(std::string_view argument) const { return args[argument].as_bool(); }
  int64_t Int(std::string_view argument) const { return args[argument].as_int(); }
  double Number(std::string_view argument) const { return args[argument].as_double(); }
  std::vector<int64_t> Ints(std::string_view argument) const { return args[argument].as_ints(); }

  /// True if the parameter gets no gradient. `parameter` is its name within the layer.
  bool IsFrozen(std::string_view parameter) const;

  /// True when a function of the script computes the layer's forward.
  bool has_scripted_forward() const { return scripted || !tied_forward.where.empty(); }

  // How its input and its output lie on the model axis. LayOut() (split.h) sets both when a stage
  // is built; the declaration does not have them.
  ShardDim input_shard;
  ShardDim output_shard;

  /// For a loss, or a loss function's metrics: the dim of the output that holds the classes, 1 or
  /// -1, or what the script says, as planning has found it (FindClassDim() of data_checks.h). It
  /// holds for outputs of any number of dims. The declaration of a loss does not have it, and none
  /// means that each micro-batch has to tell: planning did not know the output or the target, or
  /// the output has two dims.
  std::optional<int> class_dim;

  /// PyTorch's repr with the fields that differ from their defaults: "Conv2d(3, 64,
  /// kernel_size=(11, 11), ...)".
  std::string ToString() const;
  /// The canonical form, for digests and for comparing ranks: type, name, args, functions (by place
  /// and digest), children.
  Value ToValue() const;
};

/// True when a function of the script computes the forward of the layer, or of one inside it.
bool HasScripted(const LayerSpec& spec);

}  // namespace strata
