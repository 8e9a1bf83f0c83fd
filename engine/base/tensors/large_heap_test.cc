#include "engine/base/tensors/large_heap.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

namespace strata {
namespace {

constexpr size_t kMiB = 1 << 20, kHuge = 2 * kMiB;
constexpr size_t kPlenty = size_t{1} << 40;

TEST(LargeHeap, ARestServesOtherSizes) {
  LargeHeap heap(kPlenty);
  char* first = heap.Take(kHuge);
  heap.Return(first, kHuge);
  char* a = heap.Take(kMiB / 2);
  char* b = heap.Take(kMiB);
  char* c = heap.Take(kMiB / 2);
  EXPECT_EQ(c, first);
  EXPECT_EQ(b, first + kMiB / 2);
  EXPECT_EQ(a, first + kMiB / 2 + kMiB);
  EXPECT_EQ(heap.mapped(), kHuge);
}

TEST(LargeHeap, NeighboursJoinInAnyOrder) {
  std::vector<size_t> order = {0, 1, 2, 3};
  do {
    LargeHeap heap(kPlenty);
    std::vector<char*> blocks;
    for (int i = 0; i < 4; ++i) blocks.push_back(heap.Take(kHuge / 4));
    for (const size_t i : order) heap.Return(blocks[i], kHuge / 4);
    EXPECT_EQ(heap.Take(kHuge), blocks[3]);
    EXPECT_EQ(heap.mapped(), kHuge);
  } while (std::ranges::next_permutation(order).found);
}

TEST(LargeHeap, TheSmallestPieceThatFitsIsTaken) {
  LargeHeap heap(kPlenty);
  constexpr size_t kWall = LargeHeap::kUnit, kLarge = kMiB, kSmall = kMiB / 4;
  char* large = heap.Take(kLarge);
  heap.Take(kWall);
  char* small = heap.Take(kSmall);
  heap.Take(kHuge - kLarge - kWall - kSmall);
  heap.Return(large, kLarge);
  heap.Return(small, kSmall);
  EXPECT_EQ(heap.Take(kSmall - kWall), small + kWall);
  EXPECT_EQ(heap.Take(kSmall), large + kLarge - kSmall);
}

TEST(LargeHeap, BlocksOfAReservedPieceLeaveItWhole) {
  LargeHeap heap(8 * kMiB);
  heap.Reserve(6 * kMiB);
  EXPECT_TRUE(heap.Holds(6 * kMiB));
  std::vector<char*> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(heap.Take(kMiB));
  EXPECT_FALSE(heap.Holds(LargeHeap::kUnit));
  for (char* block : blocks) heap.Return(block, kMiB);
  heap.Reserve(6 * kMiB);
  heap.Reserve(16 * kMiB);  // more than the limit: nothing happens
  EXPECT_TRUE(heap.Holds(6 * kMiB));
  EXPECT_EQ(heap.ever_mapped(), 6 * kMiB);
}

TEST(LargeHeap, AFencedPieceIsNotJoinedToMemoryBeforeIt) {
  LargeHeap heap(kPlenty);
  constexpr size_t kPiece = 6 * kMiB + LargeHeap::kUnit;
  EXPECT_EQ(heap.Fence(kPiece), nullptr) << "there is no piece yet";
  heap.Reserve(kPiece + LargeHeap::kUnit);
  char* const fence = heap.Fence(kPiece);
  std::vector<char*> blocks;
  for (int i = 0; i < 2; ++i) blocks.push_back(heap.Take(3 * kMiB));  // no other piece holds them
  char* const other = heap.Take(7 * kMiB);  // mapped in front, if the system allows
  for (char* block : blocks) heap.Return(block, 3 * kMiB);
  char* const whole = heap.Take(kPiece);
  EXPECT_EQ(whole, blocks.back() - LargeHeap::kUnit);
  for (const auto& [block, size] :
       {std::pair(fence, LargeHeap::kUnit), {other, 7 * kMiB}, {whole, kPiece}}) {
    heap.Return(block, size);
  }
  heap.Release();
  EXPECT_EQ(heap.mapped(), 0u);
}

TEST(LargeHeap, GrowsByWhatAFreePieceLacks) {
  LargeHeap exact(12 * kMiB);
  exact.Take(7 * kMiB);
  ASSERT_NE(exact.Take(5 * kMiB), nullptr);
  LargeHeap heap(kPlenty);
  // Blocks of 300 sizes, one after the other. They would take 45 GiB if each size had memory of its
  // own.
  for (size_t i = 1; i <= 300; ++i) {
    char* block = heap.Take(i * kMiB);
    block[0] = 1;
    heap.Return(block, i * kMiB);
  }
  // 300 MiB, or twice that if another mapping blocks the growth once.
  EXPECT_LE(heap.mapped(), 600 * kMiB);
}

TEST(LargeHeap, WhatIsReleasedIsMappedAgainAndBlocksStay) {
  LargeHeap heap(kPlenty);
  char* before = heap.Take(3 * kMiB);
  char* kept = heap.Take(LargeHeap::kUnit);
  char* after = heap.Take(9 * kMiB);
  kept[0] = 7;
  heap.Return(before, 3 * kMiB);
  heap.Return(after, 9 * kMiB);
  heap.Release();
  EXPECT_EQ(heap.mapped(), kHuge);  // the huge page that the kept block lies on
  EXPECT_EQ(kept[0], 7);
  char* again = heap.Take(16 * kMiB);
  std::memset(again, 1, 16 * kMiB);
  EXPECT_EQ(kept[0], 7);
  heap.Return(kept, LargeHeap::kUnit);
  heap.Return(again, 16 * kMiB);
  heap.Release();
  EXPECT_EQ(heap.mapped(), 0u);
}

TEST(LargeHeap, GrowsIntoWhatWasReleased) {
  LargeHeap heap(kPlenty);
  char* above = heap.Take(kHuge);
  char* below = heap.Take(2 * kHuge);
  if (below + 2 * kHuge != above) GTEST_SKIP() << "something else was mapped between them";
  heap.Return(below, 2 * kHuge);
  heap.Release();
  EXPECT_EQ(heap.Take(2 * kHuge), below);
}

TEST(LargeHeap, GivesNoMoreThanItMay) {
  LargeHeap heap(8 * kMiB);
  char* block = heap.Take(6 * kMiB);
  EXPECT_EQ(heap.Take(3 * kMiB), nullptr);
  ASSERT_NE(heap.Take(2 * kMiB), nullptr);
  EXPECT_EQ(heap.Take(LargeHeap::kUnit), nullptr);
  heap.Return(block, 6 * kMiB);
  EXPECT_EQ(heap.Take(6 * kMiB), block);
  EXPECT_EQ(LargeHeap(kPlenty).Take(size_t{1} << 61), nullptr);
}

TEST(LargeHeap, BlocksNeverOverlap) {
  struct Block {
    char* data;
    size_t size;
    char mark;
  };
  const auto is_whole = [](const Block& block) {
    for (const size_t at : {size_t{0}, block.size / 2, block.size - 1}) {
      if (block.data[at] != block.mark) return false;
    }
    return true;
  };
  LargeHeap heap(kPlenty);
  std::mt19937 random(1);
  std::vector<Block> blocks;
  size_t used = 0, most = 0;
  for (int i = 0; i < 20'000; ++i) {
    if (random() % 500 == 0) heap.Release();
    if (!blocks.empty() && (blocks.size() > 60 || random() % 2)) {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      const Block block = blocks.back();
      ASSERT_TRUE(is_whole(block)) << i;
      heap.Return(block.data, block.size);
      used -= block.size;
      blocks.pop_back();
      continue;
    }
    const size_t size = (1 + random() % (1U << random() % 17)) * LargeHeap::kUnit;
    Block block = {heap.Take(size), size, static_cast<char>(random())};
    ASSERT_NE(block.data, nullptr);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(block.data) % LargeHeap::kUnit, 0u);
    for (const size_t at : {size_t{0}, size / 2, size - 1}) block.data[at] = block.mark;
    blocks.push_back(block);
    used += size;
    most = std::max(most, used);
  }
  EXPECT_LE(heap.mapped(), 2 * most);
  for (const Block& block : blocks) heap.Return(block.data, block.size);
  heap.Release();
  EXPECT_EQ(heap.mapped(), 0u);
}

TEST(LargeHeapDeathTest, WhatIsFreedTwiceIsNoticed) {
  LargeHeap heap(kPlenty);
  char* block = heap.Take(kMiB);
  heap.Take(kMiB);
  heap.Return(block, kMiB);
  EXPECT_DEATH(heap.Return(block, kMiB), "freed twice");
}

}  // namespace
}  // namespace strata
