// TrainingState's tensors: everything that a training would have to begin again from, where it lies
// on a rank. Parameters, buffers (BatchNorm's statistics) and the optimizer's moments, each under
// its layer path; without padding, whatever the cut.
#pragma once

#include <ATen/core/Tensor.h>

#include <map>
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

/// A tensor of the state, or the slice of it that this rank has.
struct StateTensor {
  std::string name;  ///< "3.weight", "4.running_mean", "3.weight#exp_avg"
  TensorKind kind = TensorKind::kParameter;
  TensorSpec spec;  ///< of the whole tensor
  Slice slice;
  bool is_copy = false;  ///< of a tied tensor, for a later use: it has the first use's name
  at::Tensor memory;     ///< the slice's elements, of one dim: a view of where they live

  /// Whether the ranks of the model axis share the tensor: the others have other boxes of it.
  bool is_shared() const { return slice.shape != spec.shape; }
};

/// What the first use of each tie calls its tensor: TieName() -> "embed.weight".
using TiePaths = std::map<std::string, std::string>;
TiePaths TiePathsOf(const std::vector<LayerSpec>& layers);
/// What saves call the parameter.
const std::string& SavedName(const PlacedParameter& parameter, const TiePaths& ties);

/// The tensors of a stage and its optimizer, in the order of layers; moments come after their
/// parameter. A tensor that the model axis shares is a slice, or one slice for each of its blocks
/// (attention's queries, keys and values). Frozen parameters have no moments. With ZeRO-1, moments
/// of which this rank has no part are left out. `axis` is the model axis; null when it has one
/// rank. Throws ConfigError for a name that no file can hold, and for dtypes that Strata does not
/// know.
std::vector<StateTensor> StateOf(Stage& stage, const Optimizer& optimizer, const TiePaths& ties,
                                 const AxisComm* axis);

/// Reads the tensor's slice into its memory, whose dtype the values take. Throws WorldError; and
/// ConfigError as FindSaved() does.
void LoadTensor(const Checkpoint& save, const StateTensor& tensor);

}  // namespace strata
