// Examiner: finds where the first values that are not finite come from, while a step is run once
// more.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <utility>

#include "engine/layers/layer.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// A tensor with values that are not finite. The smallest finding of all ranks is the first one:
/// forward values come before gradients, early micro-batches before later ones, and then in the
/// order of computation.
struct Finding {
  bool is_gradient = false;
  int64_t micro_batch = 0;  ///< within the step, over all replicas
  /// The index of the layer; negated for gradients, which are computed in reverse.
  int64_t place = 0;
  std::string text;  ///< "net.lua:7: layer 3 Linear(64, 10) (stage 1, ...) gives ..."
  auto operator<=>(const Finding&) const = default;
};

/// The examiner of one rank. It is given every tensor that the rank's stages compute.
class Examiner {
 public:
  /// `first_micro_batch`: the number of this replica's first micro-batch among those of all
  /// replicas. `data`: the name of the data in reports, "net.lua:9: the data".
  Examiner(int64_t first_micro_batch, std::string data)
      : first_micro_batch_(first_micro_batch), data_(std::move(data)) {}

  /// Called before a layer or the loss runs: registers hooks that examine the gradients of its
  /// inputs. `who`: the label of the layer; `place`: its index. The loss has the index after the
  /// last layer.
  void Enters(const std::string& who, int place, int stage, int m, const Tensors& inputs);
  void Leaves(StageLayer& layer, int stage, int m, const Tensors& outputs);
  void LeavesLoss(const std::string& who, int place, int stage, int m, const LossValue& loss,
                  const Tensors& target);
  /// Called with the inputs that come from the data.
  void ComesIn(int m, const Tensors& inputs);
  /// Called after a backward: examines the weight gradients, which are sums over micro-batches so
  /// far.
  void Accumulated(const FlatParameters& parameters, const std::vector<StageLayer>& layers,
                   int stage, int m);

  const std::optional<Finding>& first() const { return first_; }

 private:
  void Note(bool is_gradient, int m, int64_t place, const std::string& who, int stage,
            const std::string& what, const at::Tensor& tensor);

  const int64_t first_micro_batch_;
  const std::string data_;
  std::optional<Finding> first_;
};

/// Describes a tensor: "float32 (8, 10), 3 NaN and 1 Inf of 80 values, the others from -1.5 to 2,
/// mean 0.1".
std::string Statistics(const at::Tensor& tensor);
bool IsFinite(const at::Tensor& tensor);

}  // namespace strata
