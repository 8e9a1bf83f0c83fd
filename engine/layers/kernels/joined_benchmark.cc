// Benchmark of weight gradients (row_product.h): a step of a Linear layer with 4 micro-batches on
// one core. The gradient is made zero and each product added, or the first product overwrites it,
// or all are one product.
//   bazel run -c opt //engine/layers:joined_benchmark
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <benchmark/benchmark.h>

#include <memory>
#include <vector>

#include "engine/layers/kernels/row_product.h"
#include "engine/tensors/allocator.h"

namespace strata {
namespace {

constexpr int kMicroBatches = 4;

struct Work {
  at::Tensor weight, bias;
  std::vector<at::Tensor> dys, xs;

  explicit Work(const benchmark::State& state) {
    InstallAllocator();
    at::set_num_threads(1);
    const int64_t rows = state.range(0), in = state.range(1), out = state.range(2);
    weight = at::zeros({out, in});
    bias = at::zeros({out});
    for (int m = 0; m < kMicroBatches; ++m) {
      dys.push_back(at::rand({rows, out}));
      xs.push_back(at::rand({rows, in}));
    }
  }
  RowProduct Of(int m) const { return {dys[m], xs[m], weight, bias}; }
};

void BM_Apart(benchmark::State& state) {
  const Work work(state);
  for (auto _ : state) {
    work.weight.zero_();
    for (int m = 0; m < kMicroBatches; ++m) work.Of(m).Add();
  }
}

void BM_ApartOverwriting(benchmark::State& state) {
  const Work work(state);
  const auto stale = std::make_shared<StaleGradients>();
  for (auto _ : state) {
    stale->Mark(work.weight);
    for (int m = 0; m < kMicroBatches; ++m) {
      RowProduct product = work.Of(m);
      product.stale = stale;
      product.Add();
    }
  }
}

void BM_Joined(benchmark::State& state) {
  const Work work(state);
  JoinedProducts joined;
  for (auto _ : state) {
    work.weight.zero_();
    for (int m = 0; m < kMicroBatches; ++m) joined.Keep(work.Of(m));
    joined.Run();
  }
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  for (const int64_t rows : {8, 16, 32, 64, 128, 256}) benchmark->Args({rows, 9216, 4096});
  for (const int64_t rows : {8, 32, 128, 256}) benchmark->Args({rows, 512, 2048});
  for (const int64_t rows : {8, 32, 128}) benchmark->Args({rows, 64, 64});
  benchmark->Unit(benchmark::kMicrosecond);
}

BENCHMARK(BM_Apart)->Apply(Sizes);
BENCHMARK(BM_ApartOverwriting)->Apply(Sizes);
BENCHMARK(BM_Joined)->Apply(Sizes);

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();
