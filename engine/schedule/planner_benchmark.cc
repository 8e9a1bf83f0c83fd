// How long does it take to plan the largest programs? Prints seconds per step of the way and
// nanoseconds per lowered action.
//   bazel run //engine/schedule:planner_benchmark
// 1F1B with 512 ranks and 1,024 micro-batches has as many actions as interleaved 1F1B with 256
// ranks of 2 stages.
#include <benchmark/benchmark.h>

#include "engine/base/check.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule {
namespace {

Sizes SizesOf(const benchmark::State& state) {
  return {.ranks = static_cast<int>(state.range(0)),
          .micro_batches = static_cast<int>(state.range(1))};
}

int64_t CountActions(const Program& program) {
  int64_t count = 0;
  for (const auto& row : program.rows) count += static_cast<int64_t>(row.size());
  return count;
}

void BM_Generate(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(Generate("1f1b", SizesOf(state)));
}

void BM_Lower(benchmark::State& state) {
  const Program program = Generate("1f1b", SizesOf(state));
  for (auto _ : state) benchmark::DoNotOptimize(Lower(program));
}

void BM_Check(benchmark::State& state) {
  const Program program = Lower(Generate("1f1b", SizesOf(state)));
  for (auto _ : state) STRATA_CHECK(Check(program, {.lowered = true}).ok()) << "1f1b";
}

void BM_Simulate(benchmark::State& state) {
  const Program program = Generate("1f1b", SizesOf(state));
  for (auto _ : state) benchmark::DoNotOptimize(Simulate(program));
}

void BM_All(benchmark::State& state) {
  int64_t actions = 0;
  for (auto _ : state) {
    const Program program = Generate("1f1b", SizesOf(state));
    const Program lowered = Lower(program);
    STRATA_CHECK(Check(lowered, {.lowered = true}).ok()) << "1f1b";
    benchmark::DoNotOptimize(Simulate(program));
    actions = CountActions(lowered);
  }
  state.counters["actions"] = static_cast<double>(actions);
  state.counters["per action"] = benchmark::Counter(
      static_cast<double>(actions),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

BENCHMARK(BM_Generate)->Args({512, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Lower)->Args({512, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Check)->Args({512, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_Simulate)->Args({512, 1024})->Unit(benchmark::kMillisecond);
BENCHMARK(BM_All)->Args({512, 1024})->Args({2048, 4096})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace strata::schedule

BENCHMARK_MAIN();
