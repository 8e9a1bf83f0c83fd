#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/losses/loss_scope.h"

namespace strata {
namespace {

thread_local LossPartsScope* current = nullptr;

}  // namespace

LossPartsScope::LossPartsScope() : outer_(std::exchange(current, this)) {}

LossPartsScope::~LossPartsScope() { current = outer_; }

void GiveLossParts(LossParts parts) {
  if (current) current->parts_ = std::move(parts);
}

}  // namespace strata
