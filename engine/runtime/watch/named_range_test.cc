#include "engine/runtime/watch/named_range.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "engine/runtime/testing_job.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::FakeScript;
using testing::Function;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;

/// What the fake profiler has recorded so far.
std::vector<std::string> Heard(const std::string& log) {
  std::ifstream file(log);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(NamedRange, AProfilerHearsOfActionsAndTheirLayers) {
  if (!HasNamedRanges()) GTEST_SKIP() << "this LibTorch came without CUDA's headers";
  const std::string log = ::testing::TempDir() + "/ranges.log";
  // Must be set before the first range of the process, when NVTX looks for a profiler.
  ::setenv("FAKE_PROFILER_LOG", log.c_str(), 1);
  ::setenv("NVTX_INJECTION64_PATH", "engine/runtime/libfake_profiler.so", 1);
  const Job job =
      testing::MakeJob({Make("Linear", {6, 5}), Make("ReLU")}, Make("CrossEntropyLoss"),
                       {{"input", MapOf({{"shape", Value::IntList({6})}})},
                        {"data", MapOf({{"train", Function(1)}})},
                        {"batch", MapOf({{"micro_batches", 1}, {"micro_batch_size", 8}})},
                        {"steps", 1}});
  FakeScript script;
  script.data[1] = [](int64_t) {
    return MicroBatch{{at::ones({8, 6})}, {at::zeros({8}, at::kLong)}};
  };
  const auto engine = testing::Start(job, script);
  engine->TrainStep();
  engine->Close();
  EXPECT_THAT(Heard(log),
              ElementsAre("> 0F0", HasSubstr("layer 0 Linear"), "<", HasSubstr("layer 1 ReLU"), "<",
                          "<", "> 0B0", "<", "> 0REDUCE_GRAD", "<", "> 0STEP", "<"));
}

}  // namespace
}  // namespace strata
