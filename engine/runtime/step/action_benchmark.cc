// Measures the overhead of an action: a training step of two stages with tiny layers, on two
// threads. `per_action` is the time of one forward or backward (256 micro-batches have 512 of them
// on each rank), as in tools/bench --workload=empty.
//   bazel run -c opt //engine/runtime:action_benchmark
#include <ATen/ops/ones.h>
#include <benchmark/benchmark.h>

#include <string>

#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

using testing::FakeScript;
using testing::Make;
using testing::MapOf;

constexpr int kMicroBatches = 256;

void BM_Step(benchmark::State& state, const std::string& schedule) {
  FakeScript script;
  const at::Tensor row = at::ones({1, 8});
  script.data[1] = [&](int64_t) { return MicroBatch{{row}, {row}}; };
  const Job job = testing::MakeJob(
      {Make("Linear", {8, 8}), Make("Linear", {8, 8})}, Make("MSELoss"),
      {{"input", MapOf({{"shape", Value::IntList({8})}})},
       {"parallel", MapOf({{"pipe", 2}})},
       {"partition", Value::IntList({0, 1, 2})},
       {"schedule", schedule},
       {"batch", MapOf({{"micro_batches", kMicroBatches}, {"micro_batch_size", 1}})},
       {"data", MapOf({{"train", testing::Function(1)}})},
       {"steps", 1'000'000}});
  const auto engine = testing::Start(job, script);
  for (auto _ : state) engine->TrainStep(nullptr);
  engine->Close();
  state.counters["per_action"] =
      benchmark::Counter(2.0 * kMicroBatches, benchmark::Counter::kIsIterationInvariantRate |
                                                  benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(BM_Step, gpipe, "gpipe")->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(BM_Step, 1f1b, "1f1b")->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace strata

BENCHMARK_MAIN();
