// Sizes of Winograd's algorithm (winograd.h), without LibTorch: which convolutions it computes, how
// it divides them, and how much scratch memory that takes.
#pragma once

#include <algorithm>
#include <cstdint>

namespace strata::winograd {

inline constexpr int64_t kLanes = 16;
inline constexpr int64_t kPlaces = 16;  ///< elements of a transformed tile or window: 4 rows of 4

/// The number of tiles that are transformed at a time. All their channels (32 KiB per channel) are
/// multiplied by the weights of some outputs, about kWeights weights (1 MiB transformed), so that
/// the operands of each product fit into the second-level cache.
inline constexpr int64_t kTiles = 512;
inline constexpr int64_t kWeights = 16 * 1024;
inline constexpr int64_t kFewestOutputs = 48;

/// The least number of tiles of a batch. With fewer, transforming the weights costs too much.
inline constexpr int64_t kFewestTiles = 32;
/// The least number of channels. From 64 to 64 channels these kernels are 1.1 to 1.7 times as fast
/// as oneDNN's, from 32 to 32 channels they are equally fast.
inline constexpr int64_t kFewestChannels = 48;
/// The largest number of multiplications per output and channel pair, in place of 9. It is 4 in
/// images of even sizes, 4.6 in images of 13x13, and 5.2 in images of 7x7, since tiles at the edges
/// are partly empty.
inline constexpr int64_t kMostMultiplied = 6;

struct Sizes {
  int64_t images = 0, inputs = 0, outputs = 0;  ///< channels of x and of y
  int64_t height = 0, width = 0;

  int64_t tile_rows() const { return (height + 1) / 2; }  ///< of one image
  int64_t row_tiles() const { return (width + 1) / 2; }   ///< of one row of tiles
  int64_t tiles() const { return images * tile_rows() * row_tiles(); }
  int64_t block_rows() const { return std::max<int64_t>(1, kTiles / row_tiles()); }
  int64_t block_tiles() const {  ///< of the largest block
    return std::min(block_rows(), images * tile_rows()) * row_tiles();
  }
};

/// True for the sizes for which the algorithm was measured to be faster.
inline bool Suits(const Sizes& sizes) {
  const auto is_wide = [](int64_t channels) {
    return channels >= kFewestChannels && channels % kLanes == 0;
  };
  return is_wide(sizes.inputs) && is_wide(sizes.outputs) && sizes.tiles() >= kFewestTiles &&
         kMostMultiplied * sizes.images * sizes.height * sizes.width >= kPlaces * sizes.tiles();
}

inline int64_t RoundedUp(int64_t count) { return (count + kLanes - 1) / kLanes * kLanes; }

/// The distance of two places' planes of `rows` x `row` floats. The additional kLanes floats keep
/// planes from competing for the same sets of the caches.
inline int64_t PlaneOf(int64_t rows, int64_t row) { return rows * row + kLanes; }

/// The number of channels, of `channels`, that are computed at a time if each takes `depth`
/// weights: as many as fit into the cache, but few enough that every thread gets some.
inline int64_t ChannelsAtOnce(int64_t channels, int64_t depth, int64_t threads) {
  const int64_t cached = std::max(kFewestOutputs, kWeights / depth / kLanes * kLanes);
  return std::min(cached, RoundedUp((channels + threads - 1) / threads));
}

// The floats of scratch memory, as winograd.cc allocates them: for one block, and for the channels
// that each thread computes.

inline int64_t WorkersOn(int64_t channels, int64_t at_once, int64_t threads) {
  return std::min(threads, (channels + at_once - 1) / at_once);
}

/// Of the convolution. That of the input gradient is a convolution with inputs and outputs
/// exchanged.
inline int64_t ConvolutionScratch(const Sizes& sizes, int64_t threads) {
  const int64_t row = RoundedUp(sizes.block_tiles());
  const int64_t at_once = ChannelsAtOnce(sizes.outputs, sizes.inputs, threads);
  return kPlaces * (PlaneOf(sizes.inputs, row) +
                    WorkersOn(sizes.outputs, at_once, threads) *
                        (PlaneOf(at_once, sizes.inputs) + PlaneOf(at_once, row)));
}

inline int64_t WeightGradientScratch(const Sizes& sizes, int64_t threads) {
  const int64_t row = RoundedUp(sizes.block_tiles());
  const int64_t at_once = ChannelsAtOnce(sizes.outputs, sizes.inputs, threads);
  return kPlaces * (PlaneOf(row, sizes.inputs) + PlaneOf(sizes.outputs, sizes.inputs) +
                    WorkersOn(sizes.outputs, at_once, threads) * PlaneOf(at_once, row));
}

}  // namespace strata::winograd
