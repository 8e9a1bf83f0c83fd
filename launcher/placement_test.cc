#include "launcher/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/spec/flags.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

const Environment kTorchrun = {{"RANK", "1"},         {"WORLD_SIZE", "2"},
                               {"LOCAL_RANK", "1"},   {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "h1"}, {"MASTER_PORT", "31000"}};

std::string HostFile() {
  const std::string path = testing::TempDir() + "/hosts";
  std::ofstream(path) << "host1 slots=2\nhost2 slots=1\n";
  return path;
}

Placement Read(const std::vector<std::string>& arguments, const Environment& environment = {},
               int gpus = 0) {
  const Flags flags(arguments, PlacementFields());
  return ReadPlacement(flags.own(), environment, {.name = "host1.net", .gpus = gpus});
}

std::string ErrorWith(const std::vector<std::string>& arguments,
                      const Environment& environment = {}) {
  return ConfigErrorOf([&] { Read(arguments, environment); });
}

/// "world 2: 1 from rank 1 (1/2 here) at h1:29501".
std::string Show(const Placement& placement) {
  const RankPlace& first = placement.first;
  std::string text = Str("world ", placement.world_size);
  if (placement.is_part()) text += Str(": ", placement.ranks, " from rank ", first.rank);
  if (placement.is_part() || !placement.hosts.empty()) {
    text += Str(" (", first.local_rank, "/", first.local_world_size, " here) at ", first.store_host,
                ":", first.store_port);
  }
  for (const Host& host : placement.hosts) text += Str(" ", host.name, ":", Join(host.slots, ","));
  return text;
}

TEST(ReadPlacementTest, OnThisMachine) {
  EXPECT_EQ(Show(Read({})), "world 0");
  EXPECT_EQ(Show(Read({"--nproc=3"})), "world 3");
  EXPECT_EQ(Show(Read({"--nproc-per-node=3", "--nnodes=1"})), "world 3");
  EXPECT_EQ(Show(Read({"--num_gpus", "2", "--nproc=2"})), "world 2");
}

TEST(ReadPlacementTest, StartedByAnother) {
  const Placement placement = Read({}, kTorchrun);
  EXPECT_EQ(Show(placement), "world 2: 1 from rank 1 (1/2 here) at 127.0.0.1:31000");
  EXPECT_EQ(placement.starter, "torchrun");
  EXPECT_EQ(Show(Read({"--nproc=2", "--nproc_per_node=2", "--master_port=4000"}, kTorchrun)),
            "world 2: 1 from rank 1 (1/2 here) at 127.0.0.1:4000");
}

TEST(ReadPlacementTest, OnEveryMachine) {
  EXPECT_EQ(Show(Read({"--nnodes=2", "--node-rank=1", "--nproc_per_node=4", "--master_addr=h0",
                       "--master_port=4000"},
                      kTorchrun)),
            "world 8: 4 from rank 4 (0/4 here) at h0:4000");
  EXPECT_EQ(Show(Read({"--num_nodes=2", "--node_rank=0", "--master_addr=h0"})),
            "world 2: 1 from rank 0 (0/1 here) at h0:29500");
}

TEST(ReadPlacementTest, OverHosts) {
  EXPECT_EQ(Show(Read({"--hostfile=" + HostFile()})),
            "world 3 (0/2 here) at host1:0 host1:0,1 host2:0");
  EXPECT_EQ(Show(Read({"--hostfile=" + HostFile(), "--exclude=host1:0", "--master_addr=10.0.0.1",
                       "--master_port=4000", "--nproc=2"})),
            "world 2 (0/1 here) at 10.0.0.1:4000 host1:1 host2:0");
  EXPECT_EQ(Show(Read({"--hostfile=" + HostFile(), "--include=host2"})),
            "world 1 (0/1 here) at host2:0 host2:0");
}

TEST(ReadPlacementTest, AHostFileWithThisMachineAlone) {
  const Placement placement = Read({"--hostfile=" + HostFile(), "--include=host1:1"});
  EXPECT_EQ(Show(placement), "world 1");
  EXPECT_EQ(placement.visible_devices, "1");
  EXPECT_EQ(Show(Read({"--hostfile=" + HostFile(), "--num_nodes=1"})), "world 2");
  EXPECT_EQ(Read({"--include=localhost:0,2"}, {}, 3).visible_devices, "0,2");
  EXPECT_EQ(Read({"--exclude=localhost:0"}, {}, 3).visible_devices, "1,2");
}

TEST(ReadPlacementTest, Contradictions) {
  const std::string hosts = "--hostfile=" + HostFile();
  EXPECT_THAT(ErrorWith({"--nproc=3", "--num_gpus=2"}), HasSubstr("--nproc_per_node=2 on one"));
  EXPECT_THAT(ErrorWith({"--nnodes=2", "--num_nodes=3"}), HasSubstr("contradict each other"));
  EXPECT_THAT(ErrorWith({"--nproc=3"}, kTorchrun), HasSubstr("--nproc=3, but torchrun has 2"));
  EXPECT_THAT(ErrorWith({"--nproc_per_node=3"}, kTorchrun), HasSubstr("torchrun has 2 ranks on"));
  EXPECT_THAT(ErrorWith({"--nnodes=2"}), AllOf(HasSubstr("--node_rank is needed")));
  EXPECT_THAT(ErrorWith({"--nnodes=2", "--node_rank=0"}), HasSubstr("--master_addr is needed"));
  EXPECT_THAT(ErrorWith({"--nnodes=2", "--node_rank=2", "--master_addr=h"}),
              HasSubstr("--node_rank=2 is beyond the last of --nnodes=2"));
  EXPECT_THAT(ErrorWith({hosts, "--nproc=4"}), HasSubstr("--nproc=4, but the host file has 3"));
  EXPECT_THAT(ErrorWith({hosts, "--include=host1", "--exclude=host1"}), HasSubstr("one of them"));
  EXPECT_THAT(ErrorWith({hosts, "--include=host1", "--num_gpus=1"}), HasSubstr("no number of"));
  EXPECT_THAT(ErrorWith({hosts, "--node_rank=0"}), HasSubstr("--node_rank is for jobs"));
  EXPECT_THAT(ErrorWith({hosts}, kTorchrun), HasSubstr("rank 1 of 2 of torchrun"));
  EXPECT_THAT(ErrorWith({"--hostfile=/nowhere"}), HasSubstr("/nowhere: No such file"));
  EXPECT_THAT(ErrorWith({"--include=localhost:0"}), HasSubstr("this machine, which has none"));
  EXPECT_THAT(ErrorWith({"--master_port=70000"}), HasSubstr("master_port"));
}

TEST(ReadPlacementTest, TheOthersMustReachRankZero) {
  const std::string path = testing::TempDir() + "/local_hosts";
  std::ofstream(path) << "localhost slots=1\nhost2 slots=1\n";
  EXPECT_THAT(ErrorWith({"--hostfile=" + path}), HasSubstr("--master_addr=HOST"));
}

}  // namespace
}  // namespace strata::launcher
