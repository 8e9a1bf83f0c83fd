// AxisScope: which model axis the layers that a thread runs belong to, for those written in Lua.
#pragma once

#include <memory>

#include "engine/layers/axis_comm.h"

namespace strata {

/// While one lives, CurrentAxis() of its thread is `axis`. Nests.
class AxisScope {
 public:
  explicit AxisScope(const std::shared_ptr<AxisComm>& axis);
  ~AxisScope();
  AxisScope(const AxisScope&) = delete;
  AxisScope& operator=(const AxisScope&) = delete;

 private:
  const std::shared_ptr<AxisComm>* const outer_;
};

/// Null where there is no axis, or outside of a scope.
std::shared_ptr<AxisComm> CurrentAxis();

}  // namespace strata
