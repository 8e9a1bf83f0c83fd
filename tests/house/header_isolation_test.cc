// Torch-free headers stay so: whoever lets one of LibTorch's into them breaks this build, with the
// chain of includes in the message. LibTorch's headers cost 6 to 20 s for each file that includes
// them, and what knows them gets linked to it and loads it.

#pragma GCC poison C10_API  // Each of LibTorch's headers leads to its definition.
#include <gtest/gtest.h>

#include "tests/house/all_torch_free_headers.inc"

TEST(HeaderIsolation, HoldsIfThisCompiles) {}
