// Tests of the findings about the machine and the engine.
#include "launcher/place/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "engine/base/text.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::MatchesRegex;

Finding Find(const std::vector<Finding>& findings, const std::string& name) {
  const auto found = std::find_if(findings.begin(), findings.end(),
                                  [&](const Finding& finding) { return finding.name == name; });
  return found == findings.end() ? Finding{name, "not found", "not found"} : *found;
}

TEST(MachineFindingsTest, SeesThisMachine) {
  ::setenv("STRATA_CACHE", testing::TempDir().c_str(), 1);
  const std::vector<Finding> findings = MachineFindings();
  EXPECT_THAT(Find(findings, "system").text, HasSubstr("Linux "));
  EXPECT_THAT(Find(findings, "cores").text, MatchesRegex("[1-9][0-9]*.*"));
  EXPECT_THAT(Find(findings, "memory").text, HasSubstr("iB of it free"));
  EXPECT_THAT(Find(findings, "open files").text, HasSubstr("(ulimit -Hn)"));
  EXPECT_EQ(Find(findings, "cache").text, testing::TempDir());
  EXPECT_EQ(Find(findings, "cache").problem, "");
}

TEST(MachineFindingsTest, AMissingCacheFolder) {
  ::setenv("STRATA_CACHE", (testing::TempDir() + "/nothing").c_str(), 1);
  EXPECT_THAT(Find(MachineFindings(), "cache").problem, HasSubstr("run tools/setup"));
}

// Only the hard limit counts, because jobs raise the soft limit themselves.
TEST(MachineFindingsTest, FewOpenFiles) {
  EXPECT_EXIT(
      {
        rlimit few = {};
        few.rlim_cur = 100;
        few.rlim_max = 256;
        ::setrlimit(RLIMIT_NOFILE, &few);
        const Finding finding = Find(MachineFindings(), "open files");
        std::fputs(Str(finding.text, "; ", finding.problem).c_str(), stderr);
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "^256 .ulimit -Hn.; few open files are allowed: ");
}

Value Engine() {
  return Value::MakeMap({{"libtorch", "2.11.0"},
                         {"blas", "MKL"},
                         {"mkldnn", true},
                         {"cpu_capability", "AVX512"},
                         {"waiting", "GOMP_SPINCOUNT=1000"},
                         {"cuda", false},
                         {"devices", Value::List()}});
}

TEST(EngineFindingsTest, ACpuMachineMissesNothing) {
  const std::vector<Finding> findings = EngineFindings(Engine(), 0);
  EXPECT_EQ(Find(findings, "LibTorch").text, "2.11.0");
  EXPECT_EQ(Find(findings, "CPU library").text, "MKL, AVX512, oneDNN");
  EXPECT_EQ(Find(findings, "waiting threads").text, "GOMP_SPINCOUNT=1000");
  EXPECT_EQ(Find(findings, "CUDA, NCCL").text, "not needed without a GPU");
  for (const Finding& finding : findings) EXPECT_EQ(finding.problem, "") << finding.name;
}

TEST(EngineFindingsTest, AGpuMachineMissesCuda) {
  EXPECT_THAT(Find(EngineFindings(Engine(), 2), "CUDA, NCCL").problem,
              HasSubstr("CUDA does not start"));
  Value engine = Engine();
  engine.Set("cuda_trouble", "the driver is too old");
  EXPECT_EQ(Find(EngineFindings(engine, 2), "CUDA, NCCL").problem,
            "CUDA does not start: the driver is too old");
}

TEST(EngineFindingsTest, NamesTheDevices) {
  Value engine = Engine();
  engine.Set("cuda", true).Set("devices", Value::List{"cuda:0", "cuda:1"});
  const Finding finding = Find(EngineFindings(engine, 2), "CUDA, NCCL");
  EXPECT_EQ(finding.text, "cuda:0, cuda:1");
  EXPECT_EQ(finding.problem, "");
}

TEST(EngineFindingsTest, TellsOfKernelsWhereThereIsAGpu) {
  Value engine = Engine();
  engine.Set("cuda", true).Set("kernels", "8 for cuda:0 (sm_90)");
  EXPECT_EQ(Find(EngineFindings(engine, 1), "kernels").text, "8 for cuda:0 (sm_90)");
  Value without = Engine();
  without.Set("cuda", true).Set("kernels_trouble", "cannot load NVRTC");
  EXPECT_EQ(Find(EngineFindings(without, 1), "kernels").problem, "cannot load NVRTC");
}

TEST(FindingsTextTest, AlignsAndListsProblems) {
  EXPECT_EQ(FindingsText({{"cores", "2", ""}, {"open files", "256", "raise it"}}),
            "cores       2\n"
            "open files  256\n"
            "\n"
            "To be mended:\n"
            "- raise it\n");
  EXPECT_THAT(FindingsText({{"cores", "2", ""}}), HasSubstr("Nothing is missing."));
}

TEST(FindingsValueTest, HasItsKeys) {
  EXPECT_EQ(FindingsValue({{"cores", "2", ""}}).ToJson(),
            R"([{"name":"cores","text":"2","problem":""}])");
}

}  // namespace
}  // namespace strata::launcher
