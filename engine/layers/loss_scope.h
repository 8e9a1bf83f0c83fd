// What a loss function of the script and whoever computes the loss tell each other: the parts that
// it gives beside the loss (`return loss, {dice = d, bce = b}`), and of how many samples it is.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
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
/// `samples`: of the micro-batch; 0 = nobody knows.
class LossPartsScope {
 public:
  explicit LossPartsScope(int64_t samples);
  ~LossPartsScope();
  LossPartsScope(const LossPartsScope&) = delete;
  LossPartsScope& operator=(const LossPartsScope&) = delete;
  LossParts Take() { return std::move(parts_); }

 private:
  friend void GiveLossParts(LossParts parts);
  friend int64_t SamplesOfLoss();
  const int64_t samples_;
  LossParts parts_;
  LossPartsScope* const outer_;
};

/// Gives the innermost scope of the thread the parts; without a scope they are dropped.
void GiveLossParts(LossParts parts);
/// Those of the innermost scope of the thread; 0 without one. An output need not have them in its
/// first dim, nor a target, such as a list of boxes.
int64_t SamplesOfLoss();

}  // namespace strata
