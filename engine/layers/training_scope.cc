#include "engine/layers/training_scope.h"

#include <utility>

namespace strata {
namespace {

thread_local bool current = true;

}  // namespace

TrainingScope::TrainingScope(bool training) : outer_(std::exchange(current, training)) {}

TrainingScope::~TrainingScope() { current = outer_; }

bool IsTraining() { return current; }

}  // namespace strata
