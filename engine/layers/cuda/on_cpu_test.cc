// Tests that on_cpu.h reports what kernels must not do, by small kernels that do it.
#include "engine/layers/cuda/on_cpu.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <stdexcept>

namespace strata::on_cpu {
namespace {

using ::testing::HasSubstr;

constexpr int kThreads = 64;
alignas(64) std::array<float, 256> memory;

std::vector<KernelArgument> HundredFloats() { return {{memory.data(), 400}}; }

/// Runs a kernel with blocks of 64 threads. Returns its error; "" = none.
template <class... Args>
std::string ErrorOf(void (*kernel)(Args...),
                    std::vector<KernelArgument> arguments = HundredFloats(),
                    Order order = Order::kUp, unsigned blocks = 1) {
  try {
    MakeKernel("k", KernelElement::kFp32, kernel)
        .run({.name = "k",
              .element = KernelElement::kFp32,
              .grid_x = blocks,
              .block = kThreads,
              .arguments = std::move(arguments)},
             order);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

int Thread() { return static_cast<int>(threadIdx.x); }
int LaneSum(int x, unsigned mask) {
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(mask, x, step);
  return x;
}

/// Without an error: each thread reads what another warp wrote before the barrier.
void Turned(Global<float> out) {
  SHARED(int, turned, kThreads);
  turned[kThreads - 1 - Thread()] = Thread();
  __syncthreads();
  const int sum = LaneSum(Thread(), 0xffffffffu);
  out[Thread()] = static_cast<float>(turned[Thread()] + 1000 * sum);
}

TEST(OnCpuTest, ThreadsMeetAtBarriersAndExchangeInEachOrder) {
  for (const Order order : {Order::kUp, Order::kDown, Order::kRandom}) {
    memory.fill(-1);
    ASSERT_EQ(ErrorOf(Turned, HundredFloats(), order), "");
    for (int t = 0; t < kThreads; ++t) {
      const int of_warp = t < 32 ? 31 * 32 / 2 : 31 * 32 / 2 + 32 * 32;
      EXPECT_EQ(memory[t], static_cast<float>(kThreads - 1 - t + 1000 * of_warp));
    }
  }
}

void NoBarrier(Global<float> out) {
  SHARED(int, turned, kThreads);
  turned[Thread()] = Thread();
  out[Thread()] = static_cast<float>(turned[Thread() ^ 1]);
}
void WarpBarrier(Global<float> out) {
  SHARED(int, turned, kThreads);
  turned[Thread()] = Thread();
  __syncwarp();
  out[Thread()] = static_cast<float>(turned[Thread() ^ 1]);
}
void WarpBarrierForBlock(Global<float> out) {
  SHARED(int, turned, kThreads);
  turned[Thread()] = Thread();
  __syncwarp();
  out[Thread()] = static_cast<float>(turned[Thread() ^ 32]);
}
void WritesWhatOthersRead(Global<float> out) {
  const float first = out[0];
  out[Thread() == 5 ? 0 : Thread() + 1] = first;
}
void TwoBlocksOneElement(Global<float> out) { out[Thread()] = 1; }
void ReadsUnwritten(Global<float> out) {
  SHARED(float, unwritten, kThreads);
  out[Thread()] = unwritten[Thread()];
}
void BehindTheEnd(Global<float> out) { out[Thread() + 37] = 0; }
void BeforeTheBegin(Global<const float> in) { static_cast<void>(in[Thread() - 1]); }
void BehindShared(Global<float>) {
  SHARED(float, few, kThreads - 1);
  few[Thread()] = 1;
}
void SomeSkipBarrier(Global<float>) {
  if (Thread() < 40) __syncthreads();
}
void OtherBarrier(Global<float>) {
  if (Thread() < 40) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}
void LaneOutsideMask(Global<float>) {
  if (Thread() % 32 == 31) __shfl_xor_sync(0x7fffffffu, 1, 1);
}
void MaskOfAbsent(Global<float>) {
  if (Thread() % 32 < 16) LaneSum(1, 0xffffffffu);
}
void ValueOfAbsent(Global<float>) {
  if (Thread() % 32 < 16) __shfl_xor_sync(0xffffu, 1, 16);
}
void Misaligned(Global<float> out) {
  if (Thread() == 0) static_cast<void>(out.Vector(2, 4, false));
}
void Numbers(Global<float>, int, float, long long) {}
void Both(Global<float>, Global<const float>) {}

TEST(OnCpuTest, WrongKernelsAreReported) {
  struct Case {
    void (*kernel)(Global<float>);
    const char* error;
    unsigned blocks = 1;
  };
  const Case cases[] = {
      {NoBarrier, "thread 0: reads element 1 of turned, which this block has not written"},
      {WarpBarrier, ""},
      {WarpBarrierForBlock, "reads element 32 of turned, which thread 32 wrote with no barrier"},
      {WritesWhatOthersRead, "thread 5: writes element 0 of argument 0, which other threads read"},
      {TwoBlocksOneElement, "writes element 0 of argument 0, which another block wrote", 2},
      {ReadsUnwritten, "reads element 0 of unwritten, which this block has not written"},
      {BehindTheEnd, "thread 63: writes elements 100 to 100 of argument 0, which has 100"},
      {BehindShared, "writes elements 63 to 63 of few, which has 63"},
      {SomeSkipBarrier, "thread 40 has ended"},
      {OtherBarrier, "thread 40 at one in line"},
      {LaneOutsideMask, "thread 31: lane 31 is not in the mask"},
      {MaskOfAbsent, "for lane 16, which does not come there"},
      {ValueOfAbsent, "wants a value of lane 16, which is not in the mask"},
      {Misaligned, "reads a vector at element 2 of argument 0, which is not at a multiple of 16"},
  };
  for (const Case& c : cases) {
    const std::string error = ErrorOf(c.kernel, HundredFloats(), Order::kUp, c.blocks);
    EXPECT_THAT(error, HasSubstr(c.error));
    EXPECT_EQ(error.empty(), std::string(c.error).empty()) << error;
  }
  EXPECT_THAT(ErrorOf(BeforeTheBegin), HasSubstr("thread 0: reads elements -1 to -1"));
  EXPECT_THAT(ErrorOf(NoBarrier, HundredFloats(), Order::kDown),
              HasSubstr("thread 63: reads element 62 of turned, which this block has not written"));
}

void RacesAfterWrite(Global<float> out) {
  SHARED(float, sum, 1);
  if (Thread() == 0) sum[0] = 1;
  out[Thread()] = sum[0];
}

TEST(OnCpuTest, ARaceIsReportedWhereTheOrderHidesIt) {
  EXPECT_THAT(ErrorOf(RacesAfterWrite),
              HasSubstr("thread 1: reads element 0 of sum, which thread 0 wrote with no barrier"));
}

TEST(OnCpuTest, ArgumentsHaveTheKernelsTypes) {
  float* const at = memory.data();
  EXPECT_EQ(ErrorOf(Numbers, {{at, 4}, 1, 1.0F, int64_t{1}}), "");
  EXPECT_THAT(ErrorOf(Numbers, {{at, 4}, 1.0F, 1.0F, int64_t{1}}), HasSubstr("argument 1"));
  EXPECT_THAT(ErrorOf(Numbers, {{at, 4}, 1, 1.0F, 1}), HasSubstr("argument 3"));
  EXPECT_THAT(ErrorOf(Numbers, {{at, 4}, 1}), HasSubstr("takes 4 arguments, got 2"));
  EXPECT_EQ(ErrorOf(Both, {{at, 40}, {at + 10, 40}}), "");
  EXPECT_THAT(ErrorOf(Both, {{at, 44}, {at + 10, 40}}), HasSubstr("0 and 1 overlap"));
  EXPECT_EQ(ErrorOf(Both, {{nullptr, 44}, {at, 40}}), "") << "null does not overlap";
}

}  // namespace
}  // namespace strata::on_cpu
