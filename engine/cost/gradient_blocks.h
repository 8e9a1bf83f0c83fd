// The size of the blocks in which gradients come and go with zero = 2.
#pragma once

#include <cstdint>

namespace strata {

/// A block is neighbouring parameters of together at least so many bytes (flat_parameters.h).
int64_t GradientBlockBytes();

/// For tests: while an object lives, blocks have this size.
class WithGradientBlocks {
 public:
  explicit WithGradientBlocks(int64_t bytes);
  ~WithGradientBlocks();
  WithGradientBlocks(const WithGradientBlocks&) = delete;
  WithGradientBlocks& operator=(const WithGradientBlocks&) = delete;

 private:
  const int64_t before_;
};

}  // namespace strata
