// StateTensor: the state of a training as named tensors. It contains everything that is needed to
// resume: parameters, buffers (BatchNorm's statistics) and the optimizer's moments, each under its
// layer path. Names, shapes and values do not depend on the cuts, and padding is not included.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/slice.h"
#include "engine/layers/axis/axis_comm.h"
#include "engine/layers/layer_spec.h"
#include "engine/runtime/stage/stage.h"
#include "engine/runtime/update/optimizer.h"

namespace strata {

/// A tensor of the state, or the slice of it that is on this rank.
struct StateTensor {
  std::string name;  ///< "3.weight", "4.running_mean", "3.weight#exp_avg"
  TensorKind kind = TensorKind::kParameter;
  TensorSpec spec;  ///< of the whole tensor
  Slice slice;
  /// True for a later use of a tied tensor. It has the name of the first use.
  bool is_copy = false;
  at::Tensor memory;  ///< one dim: a view of the slice's elements where they are
  /// A weight of which few bits are held (packed_weight.h). Then `memory` is undefined.
  std::shared_ptr<PackedWeight> packed = nullptr;

  /// True if the tensor is divided among the ranks of the model axis.
  bool is_shared() const { return slice.shape != spec.shape; }
  int64_t bytes() const;  ///< of its memory
};

/// Maps the name of each tie (TieName()) to the path of the tensor in its first use,
/// "embed.weight".
using TiePaths = std::map<std::string, std::string>;
TiePaths TiePathsOf(const std::vector<LayerSpec>& layers);
/// The name of the parameter in saves: its path, or for a tied one the path of the first use.
const std::string& SavedName(const PlacedParameter& parameter, const TiePaths& ties);

/// The tensors of a stage and its optimizer, in the order of layers; moments follow their
/// parameter. A tensor divided over the model axis gives one slice, or one slice for each of its
/// blocks (attention's queries, keys and values). Frozen parameters have no moments. With ZeRO-1,
/// moments of which this rank has no part are left out. `axis`: the model axis; null if it has one
/// rank. Throws ConfigError for names that no file can contain and for dtypes that Strata does not
/// know.
std::vector<StateTensor> StateOf(Stage& stage, const Optimizer& optimizer, const TiePaths& ties,
                                 const AxisComm* axis);

/// The tensors, with the codes and scales of a packed one in its place: "3.weight#codes".
std::vector<StateTensor> InMemory(const std::vector<StateTensor>& tensors);

/// Reads the slice of the tensor from a save into its memory, converting to its dtype. Throws
/// WorldError, and ConfigError as FindSaved() does.
void LoadTensor(const Checkpoint& save, const StateTensor& tensor);

}  // namespace strata
