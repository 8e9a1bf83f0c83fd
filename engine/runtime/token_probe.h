// TokenProbe: tests whether the layers of a model give the same values for the tokens of a text one
// by one as for the whole text. If they do, what they computed of earlier tokens can be kept.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/stage/run_spec.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// Watches one forward of a text of `tokens` tokens. Each layer that is not known to treat tokens
/// independently (IsTokenWise()) runs again on its input, cut along dim 1: first all but two
/// tokens, then the last two one by one, with kept keys and values. The results are compared with
/// the layer's first output. So no claim of the script is trusted: the probe finds a layer that
/// adds positions without asking for them (strata.position()), and one that looks at later tokens,
/// or at earlier tokens without Strata's attention. It uses the weights that the model has, so a
/// layer whose effect is within rounding passes.
class TokenProbe : public LayerWatch {
 public:
  /// `layers`: those of the job. `tolerance`: the largest accepted norm of the difference, as a
  /// share of the output's norm.
  TokenProbe(const std::vector<LayerSpec>& layers, int64_t tokens, double tolerance)
      : layers_(layers), tokens_(tokens), tolerance_(tolerance) {}
  void See(const StageLayer& layer, const Tensors& input, const Tensors& output,
           const Pass& pass) override;

  /// The index in the job of the first layer that differs, -1 if none does; and why() describes the
  /// difference.
  int layer() const { return layer_; }
  const std::string& why() const { return why_; }

 private:
  std::string Difference(const StageLayer& layer, const Tensors& input, const Tensors& output,
                         const Pass& pass);
  Tensors Part(const Tensors& whole, int64_t begin, int64_t count) const;
  bool AreClose(const Tensors& got, const Tensors& expected) const;

  const std::vector<LayerSpec>& layers_;  // of the job
  const int64_t tokens_;
  const double tolerance_;
  int layer_ = -1;
  std::string why_;
};

}  // namespace strata
