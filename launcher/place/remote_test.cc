// Tests of the jobs that workers receive, and of the placements that workers make of them.
#include "launcher/place/remote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/job/flags/flags.h"

namespace strata::launcher {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

Placement TwoHosts() {
  Placement placement;
  placement.world_size = 3;
  placement.first.world_size = 3;
  placement.first.store_host = "host1";
  placement.hosts = {{"host1", {0, 1}}, {"host2", {3}, {.speed = 0.5, .memory = 7}, "F:2"}};
  placement.rank_hosts = RankHosts(placement.hosts);
  return placement;
}

std::vector<RemoteHost> Hosts(std::vector<std::string> arguments) {
  FieldTable fields = PlacementFields();
  for (const Field& field : RemoteFields()) fields.push_back(field);
  return RemoteHosts(TwoHosts(), {"a.lua", "--steps=5"}, Flags(arguments, fields).own(),
                     {{"NCCL_DEBUG", "INFO"}, {"SECRET", "x"}});
}

TEST(RemoteHostsTest, OneFixedCommandAndTheJobAsData) {
  const auto hosts = Hosts({"--ssh=my  ssh", "--remote_program=/opt/strata", "--exclude=x"});
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_THAT(hosts[0].command, ElementsAre("my", "ssh", "host1", "/opt/strata", "worker"));
  EXPECT_THAT(hosts[1].command, ElementsAre("my", "ssh", "host2", "/opt/strata", "worker"));
  const Value& job = hosts[1].job;
  EXPECT_EQ(job["rank"], Value(2));
  EXPECT_EQ(job["ranks"], Value(1));
  EXPECT_EQ(job["world_size"], Value(3));
  EXPECT_EQ(job["store_host"], Value("host1"));
  EXPECT_EQ(job["visible_devices"], Value("3"));
  EXPECT_EQ(job["folder"], Value(std::filesystem::current_path().string()));
  EXPECT_EQ(job["job_id"], hosts[0].job["job_id"]);
  EXPECT_EQ(job["secret"], hosts[0].job["secret"]);
  EXPECT_EQ(job["secret"].as_string().size(), 64u);
  EXPECT_NE(job["secret"], Hosts({})[0].job["secret"]);
  EXPECT_EQ(job["environment"].ToJson(), R"({"NCCL_DEBUG":"INFO"})");
  EXPECT_THAT(ArgumentsOf(job), ElementsAre("a.lua", "--steps=5"));
}

TEST(RemoteHostsTest, WithoutPicksAllGpusAreSeenAndTheProgramIsThisOne) {
  const auto hosts = Hosts({});
  EXPECT_EQ(hosts[0].job["visible_devices"], Value(""));
  EXPECT_EQ(hosts[0].command[0], "ssh");
  EXPECT_THAT(hosts[0].command[hosts[0].command.size() - 2], EndsWith("remote_test"));
}

TEST(RemoteHostsTest, WhatAShellCouldMisread) {
  for (const char* program : {"a b", "-x", "$(x)", "a;b", "~/strata", "a'b", ""}) {
    EXPECT_THAT(ConfigErrorOf([&] { Hosts({std::string("--remote_program=") + program}); }),
                HasSubstr("remote shell"))
        << program;
  }
  EXPECT_THAT(ConfigErrorOf([] { Hosts({"--ssh= "}); }), HasSubstr("--ssh names no program"));
}

TEST(ApplyRemoteJobTest, GivesThePlacementAndBindsRankZerosStore) {
  Value job = Hosts({})[0].job;
  job.Set("store_port", 0).Set("store_host", "localhost").Set("world_size", 2);
  int port = 0;
  const Placement placement = ApplyRemoteJob(job, port);
  EXPECT_GT(port, 0);
  EXPECT_EQ(placement.first.store_port, port);
  EXPECT_GE(placement.first.store_fd, 0);
  EXPECT_EQ(placement.ranks, 2);
  EXPECT_EQ(placement.first.secret, job["secret"].as_string());
  EXPECT_TRUE(placement.is_part());
  ASSERT_EQ(placement.rank_hosts.size(), 2u);
  EXPECT_EQ(placement.rank_hosts[1].name, "host2");
  EXPECT_EQ(placement.rank_hosts[1].ranks, 1);
  EXPECT_EQ(placement.rank_hosts[1].says, (RankRule{.speed = 0.5, .memory = 7}));
  EXPECT_EQ(placement.rank_hosts[1].where, "F:2");
  ::close(placement.first.store_fd);
}

TEST(ApplyRemoteJobTest, Refusals) {
  const Value job = Hosts({})[1].job;
  const auto error = [&](const char* name, Value value) {
    Value other = job;
    other.Set("store_port", 4000).Set(name, std::move(value));
    int port = 0;
    return ConfigErrorOf([&] { ApplyRemoteJob(other, port); });
  };
  EXPECT_THAT(error("version", "0"), HasSubstr("the launcher is the string \"0\""));
  EXPECT_THAT(error("folder", "/no/where"), HasSubstr("has no folder /no/where"));
  EXPECT_THAT(error("rank", "x"), HasSubstr("expected"));
  EXPECT_EQ(error("rank", 2), "no error");
}

TEST(RemoteHostsTest, RanksInOrderWhateverTheSlots) {
  const std::vector<std::vector<Host>> clusters = {
      {{"h1", {0}}},
      {{"h1", {0, 1, 2, 3}}, {"h2", {0}}, {"h3", {2, 5}}},
      {{"h3", {7}}, {"h2", {0, 1}}, {"h1", {1}}, {"h4", {0, 1, 2}}},
  };
  FieldTable fields = PlacementFields();
  for (const Field& field : RemoteFields()) fields.push_back(field);
  const Value flags = Flags({"--include=x", "--ssh=rsh -x"}, fields).own();
  for (const std::vector<Host>& cluster : clusters) {
    Placement placement;
    for (const Host& host : cluster) placement.world_size += static_cast<int>(host.slots.size());
    placement.first.world_size = placement.world_size;
    placement.hosts = cluster;
    const auto remote = RemoteHosts(placement, {"a.lua"}, flags, {});
    ASSERT_EQ(remote.size(), cluster.size());
    int rank = 0;
    for (size_t i = 0; i < cluster.size(); ++i) {
      const int slots = static_cast<int>(cluster[i].slots.size());
      EXPECT_EQ(remote[i].name, cluster[i].name);
      EXPECT_EQ(remote[i].command[2], cluster[i].name);
      EXPECT_EQ(remote[i].command.back(), "worker");
      EXPECT_EQ(remote[i].job["rank"], Value(rank));
      EXPECT_EQ(remote[i].job["ranks"], Value(slots));
      EXPECT_EQ(remote[i].job["world_size"], Value(placement.world_size));
      EXPECT_EQ(remote[i].job["visible_devices"], Value(Join(cluster[i].slots, ",")));
      rank += slots;
    }
  }
}

// Arguments are sent as data, and no remote shell reads them; so they may contain anything.
TEST(RemoteHostsTest, ArgumentsSurviveTheWay) {
  const std::vector<std::string> arguments = {
      "a b.lua", "--log=$(x); 'y' \"z\"\n\\", "", "--name=\xC3\xA9", "--", "*"};
  const auto hosts = RemoteHosts(TwoHosts(), arguments,
                                 Flags(std::vector<std::string>{}, RemoteFields()).own(), {});
  for (const RemoteHost& host : hosts) {
    EXPECT_EQ(ArgumentsOf(Value::FromJson(host.job.ToJson())), arguments);
    for (const std::string& word : host.command) EXPECT_EQ(word.find('$'), std::string::npos);
  }
}

TEST(RemoteHostsTest, ThisMachineNeedsNoSsh) {
  Placement placement = TwoHosts();
  placement.hosts = {{"localhost", {0}}, {"127.0.0.1", {1}}, {"host2", {0}}};
  const auto hosts =
      RemoteHosts(placement, {"a.lua"}, Flags({"--ssh=rsh"}, RemoteFields()).own(), {});
  EXPECT_THAT(hosts[0].command, ElementsAre(EndsWith("remote_test"), "worker"));
  EXPECT_EQ(hosts[1].command, hosts[0].command);
  EXPECT_THAT(hosts[2].command, ElementsAre("rsh", "host2", EndsWith("remote_test"), "worker"));
}

TEST(ForwardedTest, ByPrefixOnly) {
  const std::pair<const char*, bool> variables[] = {
      {"NCCL_DEBUG", true},      {"GLOO_SOCKET_IFNAME", true},
      {"UCX_TLS", true},         {"OMP_NUM_THREADS", true},
      {"MKL_NUM_THREADS", true}, {"KMP_AFFINITY", true},
      {"TORCH_LOGS", true},      {"STRATA_X", true},
      {"NCCL", false},           {"XNCCL_DEBUG", false},
      {"nccl_debug", false},     {"PATH", false},
      {"LD_PRELOAD", false},     {"CUDA_VISIBLE_DEVICES", false},
      {"RANK", false},           {"AWS_SECRET_ACCESS_KEY", false}};
  for (const auto& [name, goes] : variables) {
    const Environment forwarded = Forwarded({{name, "x=y z"}});
    EXPECT_EQ(forwarded, goes ? Environment({{name, "x=y z"}}) : Environment()) << name;
  }
}

}  // namespace
}  // namespace strata::launcher
