// InitTypeScope: sets the dtype in which init.h makes initial values.
#pragma once

#include <c10/core/ScalarType.h>

namespace strata {

/// While an object lives, the functions of init.h on its thread return tensors of `type`. Outside
/// of a scope they return float32. Values are drawn in that type, as in PyTorch. Scopes nest.
class InitTypeScope {
 public:
  explicit InitTypeScope(c10::ScalarType type);
  ~InitTypeScope();
  InitTypeScope(const InitTypeScope&) = delete;
  InitTypeScope& operator=(const InitTypeScope&) = delete;

 private:
  const c10::ScalarType before_;
};

}  // namespace strata
