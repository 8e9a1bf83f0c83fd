// The type in which initial values are made.
#pragma once

#include <c10/core/ScalarType.h>

namespace strata {

/// While it lives, the functions of init.h that this thread calls give tensors of `type`; without
/// one, float32. Values are drawn in their type, as PyTorch draws them.
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
