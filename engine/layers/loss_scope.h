// LossPartsScope: passes information between the code that computes a loss and the script's loss
// function. The function reports named parts of the loss (`return loss, {dice = d, bce = b}`), and
// it learns how many samples the micro-batch has.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace strata {

/// The largest number of parts of a loss.
inline constexpr size_t kMostLossParts = 16;

/// The sums of the parts over one micro-batch, sorted by name. They are scalars without a graph.
/// The weight of each mean is that of the loss (LossValue::weight).
using LossParts = std::vector<std::pair<std::string, at::Tensor>>;

/// While an object lives, it receives the parts of the losses that its thread computes. Scopes
/// nest. `samples` is the number of samples of the micro-batch; 0 = unknown.
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

/// Hands the parts to the thread's innermost scope. Without a scope they are dropped.
void GiveLossParts(LossParts parts);
/// The number of samples of the thread's innermost scope; 0 without one. It cannot be read off the
/// tensors: the first dim of an output, or of a target such as a list of boxes, need not be the
/// samples.
int64_t SamplesOfLoss();

}  // namespace strata
