// AxisScope: tells layers written in Lua which model axis they run on.
#pragma once

#include <memory>

#include "engine/layers/axis/axis_comm.h"

namespace strata {

/// While an object lives, CurrentAxis() on its thread is `axis`. Scopes nest.
class AxisScope {
 public:
  explicit AxisScope(const std::shared_ptr<AxisComm>& axis);
  ~AxisScope();
  AxisScope(const AxisScope&) = delete;
  AxisScope& operator=(const AxisScope&) = delete;

 private:
  const std::shared_ptr<AxisComm>* const outer_;
};

/// The axis of the innermost scope on this thread; null outside of a scope, or if the scope has
/// none.
std::shared_ptr<AxisComm> CurrentAxis();

}  // namespace strata
