// Examiner: where the first values that are not finite come from, while a step runs once more.
#pragma once

#include <compare>
#include <optional>
#include <string>
#include <utility>

#include "engine/layers/layer.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// Something that is not finite. The smallest finding of all ranks is the first: values come before
/// gradients, early micro-batches before later ones, and among the rest what ran first.
struct Finding {
  bool is_gradient = false;
  int64_t micro_batch = 0;  ///< within the step, over all replicas
  int64_t place = 0;  ///< the layer's index; its negative for gradients, which come in reverse
  std::string text;   ///< "net.lua:7: layer 3 Linear(64, 10) (stage 1, ...) gives ..."
  auto operator<=>(const Finding&) const = default;
};

/// One rank's. Takes every tensor that the rank's stages compute.
class Examiner {
 public:
  /// `first_micro_batch`: of this replica, among those of all. `data`: what reports call the data,
  /// "net.lua:9: the data".
  Examiner(int64_t first_micro_batch, std::string data)
      : first_micro_batch_(first_micro_batch), data_(std::move(data)) {}

  /// What goes into a layer, or into the loss, before it runs: looks at the gradient that comes
  /// back. `who`: its label; `place`: its index, of the loss that behind the last layer.
  void Enters(const std::string& who, int place, int stage, int m, const Tensors& inputs);
  void Leaves(StageLayer& layer, int stage, int m, const Tensors& outputs);
  void LeavesLoss(const std::string& who, int place, int stage, int m, const LossValue& loss,
                  const Tensors& target);
  /// What comes from the data.
  void ComesIn(int m, const Tensors& inputs);
  /// After a backward: weight gradients, summed so far.
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

/// "float32 (8, 10), 3 NaN and 1 Inf of 80 values, the others from -1.5 to 2, mean 0.1".
std::string Statistics(const at::Tensor& tensor);
bool IsFinite(const at::Tensor& tensor);

}  // namespace strata
