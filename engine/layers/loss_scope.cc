#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/loss_scope.h"

namespace strata {
namespace {

thread_local LossPartsScope* current = nullptr;

}  // namespace

LossPartsScope::LossPartsScope(int64_t samples)
    : samples_(samples), outer_(std::exchange(current, this)) {}

LossPartsScope::~LossPartsScope() { current = outer_; }

void GiveLossParts(LossParts parts) {
  if (current) current->parts_ = std::move(parts);
}

int64_t SamplesOfLoss() { return current ? current->samples_ : 0; }

}  // namespace strata
