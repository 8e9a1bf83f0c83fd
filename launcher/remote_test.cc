#include "launcher/remote.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "engine/base/testing.h"
#include "engine/spec/flags.h"

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
  placement.hosts = {{"host1", {0, 1}}, {"host2", {3}}};
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

TEST(TakeRemoteJobTest, GivesThePlacementAndBindsRankZerosStore) {
  Value job = Hosts({})[0].job;
  job.Set("store_port", 0).Set("store_host", "localhost").Set("world_size", 2);
  int port = 0;
  const Placement placement = TakeRemoteJob(job, port);
  EXPECT_GT(port, 0);
  EXPECT_EQ(placement.first.store_port, port);
  EXPECT_GE(placement.first.store_fd, 0);
  EXPECT_EQ(placement.ranks, 2);
  EXPECT_TRUE(placement.is_part());
  ::close(placement.first.store_fd);
}

TEST(TakeRemoteJobTest, Refusals) {
  const Value job = Hosts({})[1].job;
  const auto error = [&](const char* name, Value value) {
    Value other = job;
    other.Set("store_port", 4000).Set(name, std::move(value));
    int port = 0;
    return ConfigErrorOf([&] { TakeRemoteJob(other, port); });
  };
  EXPECT_THAT(error("version", "0"), HasSubstr("the launcher is the string \"0\""));
  EXPECT_THAT(error("folder", "/no/where"), HasSubstr("has no folder /no/where"));
  EXPECT_THAT(error("rank", "x"), HasSubstr("expected"));
  EXPECT_EQ(error("rank", 2), "no error");
}

}  // namespace
}  // namespace strata::launcher
