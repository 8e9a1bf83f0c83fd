// Benchmark of planning for the largest programs: prints the seconds of each phase and the
// nanoseconds per lowered action.
//   bazel run //engine/schedule:planner_benchmark
// The program is interleaved 1F1B with 2 stages per rank.
#include <benchmark/benchmark.h>

#include "engine/base/check.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {
namespace {

constexpr const char* kName = "interleaved_1f1b";

Sizes SizesOf(const benchmark::State& state) {
  return {.ranks = static_cast<int>(state.range(0)),
          .stages_per_rank = 2,
          .micro_batches = static_cast<int>(state.range(1))};
}

void BM_Generate(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Generate(kName, SizesOf(state)));
}

void BM_Lower(benchmark::State& state) {
  const Program program = Generate(kName, SizesOf(state));
  for (auto _ : state) benchmark::DoNotOptimize(Lower(program));
}

void BM_Check(benchmark::State& state) {
  const Program program = Lower(Generate(kName, SizesOf(state)));
  for (auto _ : state) STRATA_CHECK(Check(program, {.lowered = true}).ok()) << kName;
}

void BM_Simulate(benchmark::State& state) {
  const Program program = Generate(kName, SizesOf(state));
  for (auto _ : state) benchmark::DoNotOptimize(Simulate(program));
}

void BM_All(benchmark::State& state) {
  int64_t actions = 0;
  for (auto _ : state) {
    const Program program = Generate(kName, SizesOf(state));
    const Program lowered = Lower(program);
    STRATA_CHECK(Check(lowered, {.lowered = true}).ok()) << kName;
    benchmark::DoNotOptimize(Simulate(program));
    actions = CountActions(lowered);
  }
  state.counters["actions"] = static_cast<double>(actions);
  state.counters["per action"] = benchmark::Counter(
      static_cast<double>(actions),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK(BM_Generate)->Args({256, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Lower)->Args({256, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Check)->Args({256, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Simulate)->Args({256, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_All)->Args({256, 1024})->Args({1024, 4096})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata::schedule

BENCHMARK_MAIN();
