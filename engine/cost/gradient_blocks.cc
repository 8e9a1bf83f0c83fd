#include "engine/cost/gradient_blocks.h"

#include <atomic>

namespace strata {
namespace {

/// As large as the pieces in which gradients are summed: smaller blocks would be sent less well.
std::atomic<int64_t> block_bytes = 16 << 20;

}  // namespace

int64_t GradientBlockBytes() { return block_bytes; }

WithGradientBlocks::WithGradientBlocks(int64_t bytes) : before_(block_bytes.exchange(bytes)) {}

WithGradientBlocks::~WithGradientBlocks() { block_bytes = before_; }

}  // namespace strata
