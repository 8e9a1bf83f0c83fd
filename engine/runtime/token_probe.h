// TokenProbe: whether the layers of a model give the same for the tokens of a text one by one as
// for the whole text, so that what they computed of earlier tokens need not be computed again.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/runtime/stage/run_spec.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// Watches a forward of a text of `tokens` tokens. Each layer that is not known (IsTokenWise())
/// runs again on what came in, cut along dim 1, first all but two tokens and then the two, with
/// keys and values that are kept; and what it gives is compared with what it gave. So nothing of
/// the script's is taken on trust: a layer that adds positions must ask for them
/// (strata.position()), and one that looks at later tokens, or at earlier ones without attention of
/// ours, is found, with the weights that the model has. Layers whose effect is within rounding are
/// not told apart.
class TokenProbe : public LayerWatch {
 public:
  /// `layers` are the job's. `tolerance`: of the norm of the difference, as a share of the output's
  /// norm.
  TokenProbe(const std::vector<LayerSpec>& layers, int64_t tokens, double tolerance)
      : layers_(layers), tokens_(tokens), tolerance_(tolerance) {}
  void See(const StageLayer& layer, const Tensors& input, const Tensors& output,
           const Pass& pass) override;

  /// The first layer that differs, by its index in the job, and in words; -1 = none does.
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
