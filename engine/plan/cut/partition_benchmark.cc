// Benchmark of Balanced(). The question is whether a planner may call it for every candidate.
//
//   bazel run -c opt //engine/plan:partition_benchmark
//
// "Spread": weights of one magnitude, like those of the layers of a Transformer; the windows of the
// bounds are small. "Giant": one item outweighs all others, as an embedding may; every bound has a
// large window (the worst case). "Doubles": random in all 53 bits, so that the sums need the wide
// integers.
#include <benchmark/benchmark.h>

#include <cmath>
#include <random>
#include <vector>

#include "engine/plan/cut/partition.h"

namespace strata::partition {
namespace {

std::vector<int64_t> Spread(int64_t items) {
  std::mt19937_64 random(1);
  std::vector<int64_t> weights(static_cast<size_t>(items));
  for (int64_t& weight : weights) weight = static_cast<int64_t>(random() % 1'000'000);
  return weights;
}

std::vector<int64_t> Giant(int64_t items) {
  std::vector<int64_t> weights = Spread(items);
  weights[weights.size() / 2] = 1'000'000 * items;
  return weights;
}

std::vector<double> GiantDoubles(int64_t items) {
  std::vector<double> weights;
  std::mt19937_64 random(1);
  for (int64_t weight : Giant(items)) {
    weights.push_back(static_cast<double>(weight) + std::ldexp(random() >> 11, -53));
  }
  return weights;
}

template <auto kWeights, Compat kCompat = Compat::kNone>
void BM_Balanced(benchmark::State& state) {
  const auto weights = kWeights(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(Balanced(weights, state.range(1), kCompat));
}

void Sizes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"items", "parts"})->Unit(benchmark::kMillisecond);
  for (int64_t items : {100, 2'000, 10'000}) benchmark->Args({items, 64});
  benchmark->Args({10'000, 512});
}

BENCHMARK(BM_Balanced<Spread>)->Apply(Sizes);
BENCHMARK(BM_Balanced<Giant>)->Apply(Sizes);
BENCHMARK(BM_Balanced<GiantDoubles>)->Apply(Sizes);
BENCHMARK(BM_Balanced<Spread, Compat::kDeepSpeed>)
    ->Args({100, 64})
    ->Args({2'000, 64})
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata::partition

BENCHMARK_MAIN();
