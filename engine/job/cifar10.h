// The preprocessing of the source cifar10, so that images from files can be read in the same way.
#pragma once

#include <array>
#include <cstdint>

namespace strata {

inline constexpr int64_t kCifar10Side = 32;
/// Mean and standard deviation of the training images per channel (red, green, blue), for pixels
/// scaled to 0 to 1.
inline constexpr std::array<double, 3> kCifar10Mean = {0.4914, 0.4822, 0.4465};
inline constexpr std::array<double, 3> kCifar10Deviation = {0.2470, 0.2435, 0.2616};

}  // namespace strata
