// The parts of a loss: what a loss function of the script says beside the loss (`return loss, {dice
// = d, bce = b}`), on its way to whoever computes the loss.
#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

namespace strata {

/// The most parts of a loss.
inline constexpr size_t kMostLossParts = 16;

/// The sums of the parts over one micro-batch, by name, in ascending order; their weight is the
/// loss's. Scalars without a graph.
using LossParts = std::vector<std::pair<std::string, at::Tensor>>;

/// While an object lives, it takes the parts of the losses that its thread computes. Scopes nest.
class LossPartsScope {
 public:
  LossPartsScope();
  ~LossPartsScope();
  LossPartsScope(const LossPartsScope&) = delete;
  LossPartsScope& operator=(const LossPartsScope&) = delete;
  LossParts Take() { return std::move(parts_); }

 private:
  friend void GiveLossParts(LossParts parts);
  LossParts parts_;
  LossPartsScope* const outer_;
};

/// Gives the innermost scope of the thread the parts; without a scope they are dropped.
void GiveLossParts(LossParts parts);

}  // namespace strata
