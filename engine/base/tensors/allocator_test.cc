#include "engine/base/tensors/allocator.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/CPUAllocator.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include <cstdint>
#include <fstream>
#include <random>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace strata {
namespace {

at::Tensor Bytes(int64_t n) { return at::empty({n}, at::kByte); }
uintptr_t Address(const at::Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr()); }

class Memory : public ::testing::Test {
 protected:
  Memory() {
    InstallAllocator();
    at::set_num_threads(1);
  }
};

TEST_F(Memory, BlocksAreAlignedAndDoNotOverlap) {
  std::vector<at::Tensor> tensors;
  std::vector<int64_t> sizes = {1, 63, 64, 65, 511, 512, 513, 577, 1000, 4096, 4097, 100000};
  for (int64_t size = 1 << 19; size < 10 << 20; size = size * 5 / 4) sizes.push_back(size);
  for (int round = 0; round < 3; ++round) {
    for (int64_t size : sizes) {
      tensors.push_back(Bytes(size));
      EXPECT_EQ(Address(tensors.back()) % 64, 0u);
      tensors.back().fill_(static_cast<uint8_t>(tensors.size()));
    }
  }
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_TRUE(tensors[i].eq(static_cast<uint8_t>(i + 1)).all().item<bool>()) << i;
  }
}

TEST_F(Memory, AFreedBlockServesTheNextTensorOfItsSize) {
  for (int64_t size : {100, 5000, 3 << 20}) {
    const uintptr_t first = Address(Bytes(size));
    EXPECT_EQ(Address(Bytes(size)), first);
    EXPECT_EQ(Address(Bytes(size - 1)), first);
  }
}

TEST_F(Memory, EmptyTensorsTakeNothing) {
  const int64_t before = MemoryOf(0).current;
  const at::Tensor empty = Bytes(0);
  EXPECT_EQ(MemoryOf(0).current, before);
}

TEST_F(Memory, WastesAtMostAnEighth) {
  for (int64_t size = 512; size < 64 << 20; size = size * 9 / 7) {
    const int64_t before = MemoryOf(0).current;
    const at::Tensor t = Bytes(size);
    const int64_t taken = MemoryOf(0).current - before;
    EXPECT_GE(taken, size);
    EXPECT_LE(taken, size + size / 8 + 64) << size;
  }
}

TEST_F(Memory, ServesOneDnnWhichAsksWithoutAContext) {
  c10::Allocator* allocator = c10::GetCPUAllocator();
  const int64_t before = MemoryOf(0).current;
  void* data = allocator->raw_allocate(1000);
  EXPECT_GT(MemoryOf(0).current, before);
  allocator->raw_deallocate(data);
  EXPECT_EQ(MemoryOf(0).current, before);
  const at::Tensor x = at::ones({8, 3, 64, 64}), w = at::ones({16, 3, 5, 5});
  EXPECT_EQ(at::conv2d(x, w).select(0, 7).max().item<float>(), 75);
}

TEST_F(Memory, ReservingNothingTakesNothing) {
  EXPECT_EQ(ReserveMemory(0), nullptr) << "as for a stage without parameters";
}

/// Small tensors stay in arenas, which do not divide the memory of the large ones.
TEST_F(Memory, LargeTensorsWithSmallOnesBetweenThemLeaveOnePiece) {
  constexpr int64_t kLarge = 3 << 20, kCount = 8;
  ReleaseFreeMemory();
  ReserveMemory(kCount * (kLarge + 64));
  const int64_t before = MappedMemory();
  std::vector<at::Tensor> large, small;
  for (int i = 0; i < kCount; ++i) {
    large.push_back(Bytes(kLarge));
    for (int k = 0; k < 40; ++k) small.push_back(Bytes(60'000));
  }
  large.clear();
  ReleaseFreeMemory(/*needed=*/kCount * kLarge);
  const at::Tensor whole = Bytes(kCount * kLarge);
  EXPECT_EQ(MappedMemory(), before);
  ReleaseFreeMemory(/*needed=*/kCount * kLarge);  // no free piece holds that
  Bytes(kLarge);
  EXPECT_GT(MappedMemory(), before);
}

TEST_F(Memory, CountsCurrentAndPeak) {
  SetMemoryAccount(7);
  const at::Tensor kept = Bytes(1 << 20);
  { const at::Tensor freed = Bytes(2 << 20); }
  EXPECT_EQ(MemoryOf(7).current, 1 << 20);
  EXPECT_EQ(MemoryOf(7).peak, 3 << 20);
  ResetPeakMemory(7);
  EXPECT_EQ(MemoryOf(7).peak, 1 << 20);
  SetMemoryAccount(0);
}

TEST_F(Memory, ATensorCountsForWhoMadeItWhoeverFreesIt) {
  at::Tensor handed_over;
  std::thread([&] {
    SetMemoryAccount(8);
    handed_over = Bytes(1 << 20);
  }).join();
  EXPECT_EQ(MemoryOf(8).current, 1 << 20);
  const int64_t ours = MemoryOf(0).current;
  handed_over.reset();
  EXPECT_EQ(MemoryOf(8).current, 0);
  EXPECT_EQ(MemoryOf(0).current, ours);
}

TEST_F(Memory, ThreadsNeverShareABlock) {
  std::vector<int> wrong(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong, t] {
      std::mt19937 random(t);
      std::vector<at::Tensor> tensors(16);
      std::vector<uint8_t> marks(16);
      for (int i = 0; i < 3000; ++i) {
        const size_t k = random() % tensors.size();
        if (tensors[k].defined() && !tensors[k].eq(marks[k]).all().item<bool>()) ++wrong[t];
        marks[k] = static_cast<uint8_t>(random());
        tensors[k] = at::full({static_cast<int64_t>(1 + random() % 3000)}, marks[k], at::kByte);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4));
}

int64_t PageFaults() {
  rusage usage;
  getrusage(RUSAGE_THREAD, &usage);
  return usage.ru_minflt;
}

TEST_F(Memory, TheSteadyStateHasNoPageFaults) {
  const auto step = [] {
    const at::Tensor x = at::ones({1024, 1024});
    at::Tensor sum = at::zeros({1024, 1024});
    for (int i = 0; i < 4; ++i) sum = (sum + x).relu();
  };
  for (int warm_up = 0; warm_up < 3; ++warm_up) step();
  const int64_t before = PageFaults();
  for (int i = 0; i < 10; ++i) step();
  EXPECT_LT(PageFaults() - before, 20);  // with malloc there are 1,024 for each of the 100 results
}

TEST_F(Memory, GivesUnusedBlocksBackInTheLongRun) {
  // Tensors of 300 sizes, one after the other. They would take 45 GB if all their blocks were kept.
  for (int64_t i = 0; i < 300; ++i) Bytes((i + 1) << 20).narrow(0, 0, 1).fill_(1);
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  EXPECT_LT(usage.ru_maxrss, 3 << 20);  // KiB
}

int64_t ResidentBytes() {
  int64_t whole = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> whole >> resident;
  return resident * 4096;
}

TEST_F(Memory, GivesFreeBlocksBackWhenAsked) {
  constexpr int64_t kSize = 64 << 20;
  Bytes(kSize).fill_(1);
  const int64_t before = ResidentBytes();
  ReleaseFreeMemory();
  EXPECT_LT(ResidentBytes(), before - kSize / 2);
  const at::Tensor again = Bytes(kSize).fill_(2);
  ReleaseFreeMemory();
  EXPECT_EQ(again[kSize - 1].item<int>(), 2);  // memory in use is kept
}

TEST_F(Memory, NoMoreIsPromisedThanTheMachineHas) {
  struct sysinfo info = {};
  ASSERT_EQ(::sysinfo(&info), 0);
  const auto most = static_cast<int64_t>((info.totalram + info.totalswap) * info.mem_unit);
  std::vector<at::Tensor> tensors;
  const auto take_all = [&] {
    for (int64_t taken = 0; taken <= most; taken += int64_t{1} << 30) {
      tensors.push_back(Bytes(int64_t{1} << 30));  // allocated, but never written
    }
  };
  EXPECT_THROW(take_all(), WorldError);
  tensors.clear();
  ReleaseFreeMemory();
  EXPECT_NO_THROW(Bytes(int64_t{1} << 30));
  ReleaseFreeMemory();
}

TEST_F(Memory, NoMemoryIsAnErrorOfTheWorld) {
  EXPECT_THROW(Bytes(int64_t{1} << 61), WorldError);
  rlimit old;
  getrlimit(RLIMIT_AS, &old);
  rlimit small = old;
  small.rlim_cur = 1;
  setrlimit(RLIMIT_AS, &small);
  EXPECT_THROW(Bytes(int64_t{1} << 33), WorldError);
  setrlimit(RLIMIT_AS, &old);
}

}  // namespace
}  // namespace strata
