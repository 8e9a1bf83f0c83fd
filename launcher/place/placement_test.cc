// Tests of placements read from flags and environment variables.
#include "launcher/place/placement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/job/flags/flags.h"

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
  EXPECT_EQ(placement.launcher, "torchrun");
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
  const std::string secret(16, 's');
  EXPECT_EQ(
      Read({"--num_nodes=2", "--node_rank=0", "--master_addr=h0"}, {{"STRATA_SECRET", secret}})
          .first.secret,
      secret);
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

TEST(ReadPlacementTest, TheMachinesOfTheRanks) {
  const auto hosts = [](const std::vector<std::string>& arguments,
                        const Environment& environment = {}) {
    std::vector<std::string> texts;
    for (const RankHost& host : Read(arguments, environment).rank_hosts) {
      texts.push_back(Str(host.name, " ", host.ranks, " ", host.says.speed));
    }
    return Join(texts, ", ");
  };
  const std::string path = testing::TempDir() + "/unequal_hosts";
  std::ofstream(path) << "host1 slots=2\nhost2 slots=3 speed=0.5\n";
  EXPECT_EQ(hosts({"--hostfile=" + path}), "host1 2 0, host2 3 0.5");
  EXPECT_EQ(hosts({"--hostfile=" + path, "--include=host2:1"}), "host2 1 0.5");
  EXPECT_EQ(hosts({"--hostfile=" + path, "--num_nodes=1"}), "host1 2 0") << "all on this machine";
  EXPECT_EQ(hosts({}), "host1.net 0 0");
  EXPECT_EQ(hosts({"--nnodes=2", "--node_rank=0", "--master_addr=h0"}), "") << "not known";
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
  EXPECT_THAT(ErrorWith({"--hostfile=" + testing::TempDir()}),
              HasSubstr(": expected a file, this is a folder or a device"));
  for (const char* flag : {"--master_addr=h", "--master_port=4000"}) {
    EXPECT_THAT(ErrorWith({flag}), HasSubstr(" is for jobs of several machines")) << flag;
    EXPECT_EQ(ErrorWith({flag, "--nnodes=1"}), "no error") << flag;
  }
  EXPECT_THAT(ErrorWith({"--include=localhost:0"}), HasSubstr("this machine, which has none"));
  EXPECT_THAT(ErrorWith({"--master_port=70000"}), HasSubstr("master_port"));
}

TEST(ReadPlacementTest, TheOthersMustReachRankZero) {
  const std::string path = testing::TempDir() + "/local_hosts";
  std::ofstream(path) << "localhost slots=1\nhost2 slots=1\n";
  EXPECT_THAT(ErrorWith({"--hostfile=" + path}), HasSubstr("--master_addr=HOST"));
}

TEST(ReadPlacementTest, EveryAliasMeansTheSame) {
  const std::pair<const char*, const char*> aliases[] = {{"--nproc_per_node", "--num_gpus"},
                                                         {"--nnodes", "--num_nodes"},
                                                         {"--nproc_per_node", "--nproc-per-node"},
                                                         {"--num_gpus", "--num-gpus"},
                                                         {"--nnodes", "--num-nodes"}};
  for (const auto& [name, alias] : aliases) {
    const auto with = [](const std::string& flag) {
      return Show(Read({flag + "=3", "--node_rank=0", "--master_addr=h"}));
    };
    EXPECT_EQ(with(name), with(alias)) << alias;
    EXPECT_EQ(ErrorWith({Str(name, "=1"), Str(alias, "=1")}), "no error") << alias;
  }
}

TEST(ReadPlacementTest, EveryMachinesRanksInATable) {
  struct Machine {
    int nodes, per_node, node_rank;
    const char* shown;
  };
  const Machine cases[] = {
      {1, 1, 0, "world 1: 1 from rank 0 (0/1 here) at h:29500"},
      {1, 4, 0, "world 4: 4 from rank 0 (0/4 here) at h:29500"},
      {2, 1, 1, "world 2: 1 from rank 1 (0/1 here) at h:29500"},
      {3, 2, 2, "world 6: 2 from rank 4 (0/2 here) at h:29500"},
      {128, 8, 127, "world 1024: 8 from rank 1016 (0/8 here) at h:29500"},
      {1 << 20, 1, 5, "world 1048576: 1 from rank 5 (0/1 here) at h:29500"},
  };
  for (const auto& [nodes, per_node, node_rank, shown] : cases) {
    const Placement placement = Read({Str("--nnodes=", nodes), Str("--nproc_per_node=", per_node),
                                      Str("--node_rank=", node_rank), "--master_addr=h"});
    EXPECT_EQ(Show(placement), shown);
    EXPECT_EQ(placement.launcher, "--nnodes");
    EXPECT_TRUE(placement.is_part());
  }
  for (const auto& [nodes, per_node] : {std::pair(1 << 20, 2), {1 << 20, 1 << 20}, {4096, 257}}) {
    EXPECT_EQ(ErrorWith({Str("--nnodes=", nodes), Str("--nproc_per_node=", per_node),
                         "--node_rank=0", "--master_addr=h"}),
              Str("--nnodes=", nodes, " times --nproc_per_node=", per_node,
                  " is more than 1048576 ranks"));
  }
}

TEST(ReadPlacementTest, HostsInATable) {
  const std::string path = testing::TempDir() + "/four_hosts";
  std::ofstream(path) << "h1 slots=2\nh2 slots=2\nh3 slots=4\nh4 slots=2\n";
  const std::pair<std::vector<std::string>, const char*> cases[] = {
      {{}, "world 10 (0/2 here) at h1:0 h1:0,1 h2:0,1 h3:0,1,2,3 h4:0,1"},
      {{"--num_nodes=2"}, "world 4 (0/2 here) at h1:0 h1:0,1 h2:0,1"},
      {{"--num_gpus=1"}, "world 4 (0/1 here) at h1:0 h1:0 h2:0 h3:0 h4:0"},
      {{"--nnodes=3", "--nproc_per_node=2"}, "world 6 (0/2 here) at h1:0 h1:0,1 h2:0,1 h3:0,1"},
      {{"--nnodes=1"}, "world 2 (0/2 here) at h1:0 h1:0,1"},
      {{"--include=h3:3@h2"}, "world 3 (0/2 here) at h2:0 h2:0,1 h3:3"},
      {{"--exclude=h1@h3:0,1,2"}, "world 5 (0/2 here) at h2:0 h2:0,1 h3:3 h4:0,1"},
      {{"--include=h4:1", "--nproc=1", "--master_port=4000"}, "world 1 (0/1 here) at h4:4000 h4:1"},
      {{"--include=h4:1@h1:1", "--master_addr=10.0.0.9"},
       "world 2 (0/1 here) at 10.0.0.9:0 h1:1 h4:1"},
  };
  for (auto [arguments, shown] : cases) {
    arguments.push_back("--hostfile=" + path);
    EXPECT_EQ(Show(Read(arguments)), shown) << Join(arguments, " ");
  }
  const std::pair<const char*, const char*> refused[] = {
      {"--nnodes=5", "expected 5 hosts, there are 4"},
      {"--num_gpus=3", "expected 3 slots on each host, \"h1\" has 2"},
      {"--include=h5", "--include=h5: there is no host \"h5\""},
      {"--exclude=h1@h2@h3@h4", "--exclude=h1@h2@h3@h4: no slot is left"},
      {"--nproc=9", "--nproc=9, but the host file has 10 ranks"},
  };
  for (const auto& [flag, error] : refused) {
    EXPECT_THAT(ErrorWith({"--hostfile=" + path, flag}), HasSubstr(error)) << flag;
  }
}

TEST(ReadPlacementTest, AHostFilesErrorsHaveItsLines) {
  const std::string path = testing::TempDir() + "/bad_hosts";
  std::ofstream(path) << "h1 slots=2\n\nh2 slots\n";
  EXPECT_THAT(ErrorWith({"--hostfile=" + path}), StartsWith(path + ":3: expected HOST slots=N"));
}

TEST(ReadPlacementTest, NumbersHaveLimits) {
  for (const char* flag :
       {"--nproc=0", "--nproc=4097", "--nproc_per_node=0", "--num_gpus=1048577", "--nnodes=0",
        "--num_nodes=x", "--node_rank=-1", "--master_port=0", "--master_port=65536"}) {
    const std::string name = Split(std::string(flag).substr(2), '=')[0];
    EXPECT_THAT(ErrorWith({flag}), HasSubstr(name + " expects an integer")) << flag;
  }
}

TEST(CheckIsWholeTest, NamesTheCommandAndWhoStartsTheRest) {
  CheckIsWhole(Read({"--nproc=3"}), "strata verify");
  EXPECT_EQ(ConfigErrorOf([] { CheckIsWhole(Read({}, kTorchrun), "strata verify"); }),
            "strata verify starts all ranks itself, but this process is rank 1 of 2 of torchrun");
}

TEST(IsThisMachineTest, ByAnyOfItsNames) {
  for (const char* host : {"localhost", "127.0.0.1", "127.1.2.3", "::1", "host1", "host1.net"}) {
    EXPECT_TRUE(IsThisMachine(host, "host1.net")) << host;
  }
  for (const char* host : {"host2", "host1.org", "host", "net", "", "10.0.0.1", "host1.net.x"}) {
    EXPECT_FALSE(IsThisMachine(host, "host1.net")) << host;
  }
}

}  // namespace
}  // namespace strata::launcher
