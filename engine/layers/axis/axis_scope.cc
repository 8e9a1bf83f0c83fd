#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/axis/axis_scope.h"

#include <utility>

namespace strata {
namespace {

thread_local const std::shared_ptr<AxisComm>* current = nullptr;

}  // namespace

AxisScope::AxisScope(const std::shared_ptr<AxisComm>& axis)
    : outer_(std::exchange(current, &axis)) {}

AxisScope::~AxisScope() { current = outer_; }

std::shared_ptr<AxisComm> CurrentAxis() { return current ? *current : nullptr; }

}  // namespace strata
