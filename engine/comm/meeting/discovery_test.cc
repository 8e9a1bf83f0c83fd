#include "engine/comm/meeting/discovery.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "engine/base/testing.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;
using testing::SizeIs;
using testing::StartsWith;

Environment With(Environment base, const Environment& over) {
  for (const auto& [name, value] : over) base[name] = value;
  return base;
}

const Environment kTorchrun = {{"RANK", "3"},         {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "h1"}, {"MASTER_PORT", "29501"}};
const Environment kAgent = {{"TORCHELASTIC_RUN_ID", "none"},
                            {"TORCHELASTIC_RESTART_COUNT", "2"},
                            {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Environment kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                              {"OMPI_COMM_WORLD_SIZE", "4"},
                              {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                              {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}};
const Environment kSlurm = {{"SLURM_PROCID", "3"},
                            {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_LOCALID", "1"},
                            {"SLURM_STEP_ID", "0"},
                            {"SLURM_JOB_ID", "77"},
                            {"SLURM_NODEID", "1"},
                            {"SLURM_STEP_NODELIST", "node[07-08]"},
                            {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}};
// Slurm's variables in the only task of a step: one of mpirun's daemons, on a node without mpirun
// itself.
const Environment kDaemon = With(kSlurm, {{"SLURM_PROCID", "0"},
                                          {"SLURM_STEP_NUM_TASKS", "1"},
                                          {"SLURM_LOCALID", "0"},
                                          {"SLURM_NODEID", "0"},
                                          {"SLURM_STEP_NODELIST", "node08"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "1"},
                                          {"SLURM_JOB_NODELIST", "node[07-08]"}});
// The variables that Slurm's MPI plugin adds for the only task of a step, where PMIx is the site's
// default.
const Environment kSlurmsPmix = {{"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "slurm.pmix.77.0"}};
const Environment kPod = {{"RANK", "1"},
                          {"WORLD_SIZE", "8"},
                          {"MASTER_ADDR", "m-0"},
                          {"MASTER_PORT", "31456"},
                          {"PET_NPROC_PER_NODE", "4"},
                          {"PET_NNODES", "2"}};

struct Case {
  const char* name;
  Environment environment;
  const char* expected;  // "LAUNCHER: rank/size local/local_size xRANKS at HOST[:PORT]"
};

std::string ShowPlace(const RankPlace& place) {
  return Str(place.rank, "/", place.world_size, " ", place.local_rank, "/", place.local_world_size);
}

/// The discovery in the form of Case::expected. Ports that are derived from the job's id are left
/// out.
std::string Show(const std::optional<Discovery>& found) {
  if (!found) return "none";
  const RankPlace& place = found->place;
  const bool own_port = place.store_port >= 20'000 && place.store_port < 29'000;
  return Str(found->launcher, ": ", ShowPlace(place), " x", found->ranks, " at ", place.store_host,
             own_port ? "" : Str(":", place.store_port));
}

class DiscoverTest : public testing::TestWithParam<Case> {};

TEST_P(DiscoverTest, Finds) {
  EXPECT_EQ(Show(Discover(GetParam().environment)), GetParam().expected);
}

INSTANTIATE_TEST_SUITE_P(
    Starters, DiscoverTest,
    testing::Values(
        Case{"Nothing", {{"HOME", "/root"}, {"MASTER_ADDR", "h1"}}, "none"},
        Case{"Torchrun", kTorchrun, "torchrun: 3/4 1/2 x1 at h1:29501"},
        Case{"TorchrunOnOneMachine",
             With(kTorchrun, {{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "4"}}),
             "torchrun: 3/4 3/4 x1 at 127.0.0.1:29501"},
        Case{"TorchrunsAgentServesTheStore",
             With(With(kTorchrun, kAgent), {{"LOCAL_RANK", "3"}, {"LOCAL_WORLD_SIZE", "4"}}),
             "torchrun: 3/4 3/4 x1 at h1:29501"},
        Case{"TorchrunInsideSlurm",
             With(With(kSlurm, {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
                  With(kTorchrun, kAgent)),
             "torchrun: 3/4 1/2 x1 at h1:29501"},
        Case{"ByHandOnOneMachine",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}},
             "torchrun: 1/2 1/2 x1 at 127.0.0.1:29500"},
        Case{"OpenMpiOnOneMachine",
             With(kOpenMpi,
                  {{"OMPI_COMM_WORLD_LOCAL_RANK", "3"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}),
             "Open MPI: 3/4 3/4 x1 at 127.0.0.1:29500"},
        Case{"OpenMpiOnSeveral", With(kOpenMpi, {{"MASTER_ADDR", "h1"}}),
             "Open MPI: 3/4 1/2 x1 at h1:29500"},
        Case{"OpenMpi5HasPmixToo",
             With(kOpenMpi,
                  {{"MASTER_ADDR", "h1"}, {"PMIX_RANK", "3"}, {"PMIX_NAMESPACE", "prte-9@1"}}),
             "Open MPI: 3/4 1/2 x1 at h1"},
        Case{"OpenMpiWhoseDaemonsSlurmStarted", With(kDaemon, kOpenMpi),
             "Open MPI: 3/4 1/2 x1 at node07"},
        Case{"OpenMpiBesideMpirunInABatchScript",
             With(kOpenMpi, {{"ENVIRONMENT", "BATCH"},
                             {"SLURM_PROCID", "0"},
                             {"SLURM_NTASKS", "4"},
                             {"SLURM_JOB_NODELIST", "node[07-08]"}}),
             "Open MPI: 3/4 1/2 x1 at node07:29500"},
        Case{"OpenMpiInAnInteractiveStepWithPmix",
             With(With(kDaemon, kSlurmsPmix), With(kOpenMpi, {{"PMIX_RANK", "3"}})),
             "Open MPI: 3/4 1/2 x1 at node07"},
        // Slurm's numbers, which are the daemon's, happen to equal the rank's.
        Case{"OpenMpiWithAsManyRanksAsDaemons",
             With(With(kSlurm, {{"SLURM_STEP_NODELIST", "node[08-09]"},
                                {"SLURM_JOB_NODELIST", "node[07-09]"}}),
                  With(kOpenMpi,
                       {{"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}})),
             "Open MPI: 3/4 0/1 x1 at node07"},
        Case{"IntelMpi",
             {{"PMI_RANK", "1"},
              {"PMI_SIZE", "2"},
              {"MPI_LOCALRANKID", "1"},
              {"MPI_LOCALNRANKS", "2"}},
             "MPICH or Intel MPI: 1/2 1/2 x1 at 127.0.0.1:29500"},
        Case{"SlurmsPmi2", With(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}}),
             "MPICH or Intel MPI: 3/4 1/2 x1 at node07"},
        Case{"SlurmsPmix", With(kSlurm, {{"PMIX_RANK", "3"}}), "PMIx: 3/4 1/2 x1 at node07"},
        Case{"Slurm", kSlurm, "Slurm: 3/4 1/2 x1 at node07"},
        Case{"SlurmWithRankByHand",
             With(kSlurm, {{"RANK", "3"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "h1"}}),
             "torchrun: 3/4 1/2 x1 at h1"},
        Case{"SlurmWithUnevenNodes",
             With(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "1,3"}, {"SLURM_LOCALID", "2"}}),
             "Slurm: 3/4 2/3 x1 at node07"},
        Case{"SlurmOfFewWords",
             {{"SLURM_PROCID", "3"},
              {"SLURM_NTASKS", "4"},
              {"SLURM_LOCALID", "1"},
              {"SLURM_JOB_NODELIST", "a,b"}},
             "Slurm: 3/4 1/2 x1 at a:29500"},
        Case{"SlurmOnOneNode",
             {{"SLURM_PROCID", "1"},
              {"SLURM_NTASKS", "2"},
              {"SLURM_LOCALID", "1"},
              {"SLURM_JOB_NODELIST", "a"}},
             "Slurm: 1/2 1/2 x1 at 127.0.0.1:29500"},
        Case{"SlurmsBatchScript",
             {{"ENVIRONMENT", "BATCH"},
              {"SLURM_PROCID", "0"},
              {"SLURM_NTASKS", "2"},
              {"SLURM_LOCALID", "0"}},
             "none"},
        Case{"SlurmsInteractiveStep", With(kSlurm, {{"SLURM_STEP_NUM_TASKS", "1"}}), "none"},
        Case{"SlurmsInteractiveStepWithPmix", With(kDaemon, kSlurmsPmix), "none"},
        Case{"SlurmsInteractiveStepWithPmi2", With(kDaemon, {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}}),
             "none"},
        Case{"PyTorchJobsFirstPod",
             {{"RANK", "0"},
              {"WORLD_SIZE", "2"},
              {"MASTER_ADDR", "localhost"},
              {"MASTER_PORT", "31456"},
              {"PET_NNODES", "2"}},
             "torchrun: 0/2 0/1 x1 at localhost:31456"},
        Case{"ByHandInKubernetes",
             {{"RANK", "1"},
              {"WORLD_SIZE", "2"},
              {"MASTER_ADDR", "localhost"},
              {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}},
             "torchrun: 1/2 1/2 x1 at 127.0.0.1:29500"},
        Case{"TheFirstPodInKubernetes",
             {{"RANK", "0"},
              {"WORLD_SIZE", "2"},
              {"MASTER_ADDR", "localhost"},
              {"KUBERNETES_SERVICE_HOST", "10.0.0.1"}},
             "torchrun: 0/2 0/1 x1 at localhost:29500"},
        Case{"PyTorchJob",
             {{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "m-0"}, {"MASTER_PORT", "31456"}},
             "torchrun: 1/2 0/1 x1 at m-0:31456"},
        Case{"PyTorchJobOfSeveralRanksAPod", kPod, "PyTorchJob: 4/8 0/4 x4 at m-0:31456"}),
    [](const auto& info) { return std::string(info.param.name); });

class RefusedTest : public testing::TestWithParam<Case> {};

TEST_P(RefusedTest, SaysWhatWasReadFromWhere) {
  const std::string error = ConfigErrorOf([] { Discover(GetParam().environment); });
  EXPECT_THAT(
      error, AllOf(StartsWith(GetParam().expected), HasSubstr("\nread from the environment:\n  ")));
}

INSTANTIATE_TEST_SUITE_P(
    Contradictions, RefusedTest,
    testing::Values(
        Case{"RankBeyondTheSize", With(kTorchrun, {{"RANK", "4"}}),
             "RANK = 4 is beyond the last of WORLD_SIZE = 4"},
        Case{"NoNumber", With(kTorchrun, {{"RANK", "1x"}}), "RANK = 1x is no whole number from 0"},
        Case{"Negative", With(kTorchrun, {{"RANK", "-1"}}), "RANK = -1 is no whole number"},
        Case{"Huge", With(kTorchrun, {{"WORLD_SIZE", "99999999999999"}}),
             "WORLD_SIZE = 99999999999999 is no whole number"},
        Case{"NoSize", {{"RANK", "1"}}, "WORLD_SIZE is missing: how many"},
        Case{"NoRank", {{"WORLD_SIZE", "2"}}, "RANK is missing: which"},
        Case{"EmptyIsMissing", {{"RANK", ""}, {"WORLD_SIZE", "2"}}, "RANK is missing"},
        Case{"NoMaster", {{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "MASTER_ADDR is missing: "},
        Case{"BadPort", With(kTorchrun, {{"MASTER_PORT", "70000"}}), "MASTER_PORT = 70000 is no"},
        Case{"LocalRankBeyond", With(kTorchrun, {{"LOCAL_RANK", "2"}}),
             "LOCAL_RANK = 2 is beyond the last of LOCAL_WORLD_SIZE = 2"},
        Case{"NoLocalSize",
             {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "h"}},
             "LOCAL_WORLD_SIZE is missing"},
        Case{"MoreHereThanInAll", With(kTorchrun, {{"LOCAL_WORLD_SIZE", "5"}}),
             "LOCAL_WORLD_SIZE = 5 ranks on this machine, but only 4 in all"},
        Case{"TwoStarters", With(kTorchrun, With(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "2"}})),
             "two launchers disagree on the rank: RANK = 3, but OMPI_COMM_WORLD_RANK = 2"},
        Case{"TwoSizes", With(kTorchrun, With(kSlurm, {{"SLURM_STEP_NUM_TASKS", "8"}})),
             "two launchers disagree on the number of ranks: WORLD_SIZE = 4, but "},
        Case{"OpenMpiWithoutAMaster", kOpenMpi, "MASTER_ADDR is missing: the ranks are on several"},
        Case{"PmixAlone", {{"PMIX_RANK", "1"}}, "WORLD_SIZE is missing"},
        Case{"BadHostList", With(kSlurm, {{"SLURM_STEP_NODELIST", "node[1-"}}),
             "SLURM_STEP_NODELIST: \"node[1-\" is no list of hosts"},
        Case{"BadCounts", With(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}),
             "SLURM_STEP_TASKS_PER_NODE: \"2(x\" is no list of counts"},
        Case{"UnevenWithoutANode",
             With(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "1,3"}, {"SLURM_NODEID", ""}}),
             "SLURM_NODEID is missing: the nodes have different"},
        Case{"AgentWithoutAPort", With(With(kTorchrun, kAgent), {{"MASTER_PORT", ""}}),
             "MASTER_PORT is missing: the store of torchrun's agent"},
        Case{"PodsOfUnknownSize",
             {{"RANK", "0"}, {"PET_NPROC_PER_NODE", "auto"}},
             "PET_NPROC_PER_NODE = auto leaves"},
        Case{"PodsWithoutTheirNumber",
             {{"RANK", "0"}, {"PET_NPROC_PER_NODE", "2"}},
             "PET_NNODES is missing"}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(DiscoverTest, TheTableOfWhatWasRead) {
  EXPECT_EQ(ConfigErrorOf([] {
              Discover({{"RANK", "2"}, {"WORLD_SIZE", "2"}, {"HOME", "/"}});
            }),
            "RANK = 2 is beyond the last of WORLD_SIZE = 2; they count from 0\n"
            "read from the environment:\n"
            "  RANK       = 2\n"
            "  WORLD_SIZE = 2");
  EXPECT_THAT(ConfigErrorOf([] {
                Discover({{"WORLD_SIZE", "2"}});
              }),
              EndsWith("\n  WORLD_SIZE = 2\n  RANK       (not set)"));
}

TEST(DiscoverTest, TheSecretIsOnlyTheEnvironments) {
  EXPECT_EQ(Discover(kTorchrun)->place.secret, "");
  const std::string secret(16, 's');
  EXPECT_EQ(Discover(With(kTorchrun, {{"STRATA_SECRET", secret}}))->place.secret, secret);
  EXPECT_EQ(PlaceFromInit({}, With(kTorchrun, {{"STRATA_SECRET", secret}})).secret, secret);
  EXPECT_THAT(ConfigErrorOf([] {
                Discover(With(kTorchrun, {{"STRATA_SECRET", "short"}}));
              }),
              HasSubstr("STRATA_SECRET has 5 characters"));
}

TEST(DiscoverTest, TheCommandLineHolds) {
  EXPECT_EQ(Show(Discover(kOpenMpi, {.master_addr = "h2", .master_port = 4000})),
            "Open MPI: 3/4 1/2 x1 at h2:4000");
  EXPECT_EQ(Show(Discover(kPod, {.ranks_per_node = 3})), "PyTorchJob: 3/6 0/3 x3 at m-0:31456");
}

TEST(DiscoverTest, JobsOnOneMachineMeetAtDifferentPorts) {
  const auto port = [](const char* id) {
    return Discover(With(kSlurm, {{"SLURM_JOB_ID", id}}))->place.store_port;
  };
  EXPECT_EQ(port("77"), port("77"));
  EXPECT_NE(port("77"), port("78"));
  EXPECT_EQ(Discover(kSlurm)->place.job_id, "77.0");
  EXPECT_EQ(Discover(With(kTorchrun, kAgent))->place.job_id, "none/2");
  EXPECT_TRUE(Discover(With(kTorchrun, kAgent))->place.store_is_served);
}

// On mpirun's own node there is no step, and in a shell of salloc not even a task; on the other
// nodes the step's variables are those of mpirun's daemons.
TEST(DiscoverTest, RanksOfMpirunInsideSlurmMeetAtOnePlace) {
  const Environment intel = {{"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}, {"MPI_LOCALRANKID", "0"}};
  const Environment shell = {{"SLURM_JOB_ID", "77"}, {"SLURM_JOB_NODELIST", "node[07-08]"}};
  const Environment batch = With(shell, {{"ENVIRONMENT", "BATCH"}, {"SLURM_PROCID", "0"}});
  const RankPlace far = Discover(With(With(kDaemon, intel), {{"PMI_RANK", "2"}}))->place;
  EXPECT_EQ(far.store_host, "node07");
  for (const Environment& near : {shell, batch}) {
    const RankPlace first = Discover(With(With(near, intel), {{"PMI_RANK", "0"}}))->place;
    EXPECT_EQ(first.store_host, far.store_host);
    EXPECT_EQ(first.store_port, far.store_port);
    EXPECT_EQ(first.job_id, far.job_id);
  }
}

TEST(ExpandHostListTest, Expands) {
  EXPECT_THAT(ExpandHostList("node[01-03,7],gpu-a[1-2]b"),
              ElementsAre("node01", "node02", "node03", "node7", "gpu-a1b", "gpu-a2b"));
  EXPECT_THAT(ExpandHostList("r[1-2]n[08-10]"),
              ElementsAre("r1n08", "r1n09", "r1n10", "r2n08", "r2n09", "r2n10"));
  EXPECT_THAT(ExpandHostList("a"), ElementsAre("a"));
  EXPECT_THAT(ExpandHostList("a[998-1001]"), ElementsAre("a998", "a999", "a1000", "a1001"));
  EXPECT_THAT(ExpandHostList("n[0-65535]"), SizeIs(65'536));
  EXPECT_THAT(ExpandHostList("n[2147483646-2147483647]"),
              ElementsAre("n2147483646", "n2147483647"));
}

TEST(ExpandHostListTest, Refuses) {
  for (const char* list :
       {"", "a,", "a[", "a]", "a[]", "a[1", "a[2-1]", "a[x]", "a[1-2-3]", "a b", "a[-1]", "a[[1]]",
        "n[0-65536]", "n[0-999]m[0-999]", "n[0-2147483647]", "n[99999999999]"}) {
    EXPECT_THAT(ConfigErrorOf([&] { ExpandHostList(list); }), HasSubstr("is no list of hosts"))
        << list;
  }
}

// Each of these short texts would expand to gigabytes.
TEST(ExpandHostListTest, RefusesBombs) {
  std::string ranges;
  for (int i = 0; i < 10'000; ++i) ranges += "0-65535,";
  const std::string zeros(100'000, '0'), name(100'000, 'a');
  std::string brackets = "n[0-65535]";
  for (int i = 0; i < 200; ++i) brackets += "[1]";
  for (const std::string& list :
       {"n[" + ranges + "1]", "n[" + zeros + "-65535]", name + "[0-65535]", brackets}) {
    EXPECT_THAT(ConfigErrorOf([&] { ExpandHostList(list); }), HasSubstr("is no list of hosts"));
  }
}

TEST(ExpandCountsTest, ExpandsAndRefuses) {
  EXPECT_THAT(ExpandCounts("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(ExpandCounts("4"), ElementsAre(4));
  for (const char* counts : {"", "2(x", "2(x3", "2(3)", "(x3)", "a", "1,,1", "1(x99999999)"}) {
    EXPECT_THAT(ConfigErrorOf([&] { ExpandCounts(counts); }), HasSubstr("is no list of counts"))
        << counts;
  }
}

std::string ShowInit(const InitOptions& options, const Environment& environment) {
  const RankPlace place = PlaceFromInit(options, environment);
  return Str(ShowPlace(place), " at ", place.store_host, ":", place.store_port, " ",
             place.store_file);
}

TEST(PlaceFromInitTest, Methods) {
  EXPECT_EQ(ShowInit({}, kTorchrun), "3/4 1/2 at h1:29501 ");
  EXPECT_EQ(ShowInit({.init_method = "tcp://localhost:4000", .rank = 1, .world_size = 2}, {}),
            "1/2 1/2 at 127.0.0.1:4000 ");
  EXPECT_EQ(ShowInit({.init_method = "tcp://h2", .rank = 1, .world_size = 2}, {}),
            "1/2 0/1 at h2:29500 ");
  EXPECT_EQ(ShowInit({.init_method = "tcp://[fe80::1]:4000"}, kTorchrun),
            "3/4 1/2 at fe80::1:4000 ");
  EXPECT_EQ(ShowInit({.init_method = "file:///tmp/store", .rank = 0, .world_size = 2}, {}),
            "0/2 0/2 at 127.0.0.1:29500 /tmp/store");
  EXPECT_EQ(ShowInit({.rank = 0, .world_size = 1, .port = 4000}, {}), "0/1 0/1 at 127.0.0.1:4000 ");
  EXPECT_FALSE(PlaceFromInit({.init_method = "tcp://h2"}, With(kTorchrun, kAgent)).store_is_served);
}

TEST(PlaceFromInitTest, TellsTheCallFromTheEnvironment) {
  EXPECT_THAT(
      ConfigErrorOf([] {
        PlaceFromInit({.init_method = "tcp://h:1", .rank = 2}, {{"RANK", ""}, {"WORLD_SIZE", "2"}});
      }),
      EndsWith("\n  RANK       = 2 (from the call)\n  WORLD_SIZE = 2"));
}

TEST(PlaceFromInitTest, Refusals) {
  const auto error = [](const InitOptions& options, const Environment& environment) {
    return ConfigErrorOf([&] { PlaceFromInit(options, environment); });
  };
  EXPECT_THAT(error({}, {}), StartsWith("neither the call nor the environment says rank"));
  EXPECT_THAT(error({.rank = 0}, {}), StartsWith("WORLD_SIZE is missing"));
  EXPECT_THAT(error({.rank = 1}, kTorchrun), StartsWith("rank = 1, but the environment says 3"));
  EXPECT_THAT(error({.discover = false}, kOpenMpi), StartsWith("neither the call nor"));
  EXPECT_THAT(error({.init_method = "tcp://h2:4000"}, kPod), HasSubstr("strata train"));
  for (const char* method : {"", "env", "tcp://", "tcp://:4000", "tcp://h:", "tcp://h:x",
                             "tcp://h:70000", "tcp://h/p", "file://relative", "mpi://"}) {
    EXPECT_THAT(error({.init_method = method, .rank = 0, .world_size = 1}, {}),
                HasSubstr("expected "))
        << method;
  }
}

TEST(ProcessEnvironmentTest, HoldsTheVariables) {
  ::setenv("STRATA_DISCOVERY_TEST", "a=b", 1);
  EXPECT_EQ(ProcessEnvironment().at("STRATA_DISCOVERY_TEST"), "a=b");
}

}  // namespace
}  // namespace strata
