#include "engine/search/cluster/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <memory>

#include "engine/base/testing.h"

namespace strata::search {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// ---- Collectives

Group Flat(int ranks) { return {.per_node = ranks, .within = {1e-5, 1e9}, .between = {1e-4, 1e8}}; }

// Each expected value is computed by hand from the alpha-beta model.
TEST(Collectives, AreTheModelsByHand) {
  EXPECT_DOUBLE_EQ(LinkRates({1e-5, 1e9}).Seconds(1e6), 1e-5 + 1e-3);
  // 4 ranks, 4 MB: recursive halving sends 2 messages and moves 3/4 of the buffer.
  EXPECT_DOUBLE_EQ(HalfAllReduceSeconds(Flat(4), 4e6), 2e-5 + 3e-3);
  EXPECT_DOUBLE_EQ(AllReduceSeconds(Flat(4), 4e6), 2 * (2e-5 + 3e-3));
  // 3 ranks use a ring.
  EXPECT_DOUBLE_EQ(HalfAllReduceSeconds(Flat(3), 3e6), 2e-5 + 2e-3);
  // Few bytes: recursive doubling sends 2 messages instead of 4.
  EXPECT_DOUBLE_EQ(AllReduceSeconds(Flat(4), 4), 2 * (1e-5 + 4e-9));
  // 2 nodes of 4 ranks: within the nodes, then a quarter between the nodes, then within again.
  Group two = Flat(4);
  two.nodes = 2;
  EXPECT_DOUBLE_EQ(AllReduceSeconds(two, 4e6), 2 * (2e-5 + 3e-3) + 1 * (1e-4 + 1e-2));
  EXPECT_DOUBLE_EQ(ShareSent(4, 4e6), 3e6);
}

RC_GTEST_PROP(Collectives, GrowWithBytesAndShrinkWithBandwidth, ()) {
  Group group{*rc::gen::inRange(1, 20), *rc::gen::inRange(1, 20), {1e-5, 1e9}, {1e-4, 1e8}};
  const double bytes = *rc::gen::inRange(0, 1 << 30);
  const double more = bytes + *rc::gen::inRange(0, 1 << 30);
  Group faster = group;
  faster.between.bandwidth *= 2;
  faster.within.bandwidth *= 3;
  for (auto seconds : {HalfAllReduceSeconds, AllReduceSeconds}) {
    RC_ASSERT(seconds(group, bytes) <= seconds(group, more));
    RC_ASSERT(seconds(faster, bytes) <= seconds(group, bytes));
    RC_ASSERT((seconds(group, bytes) == 0) == (group.size() == 1));
  }
  RC_ASSERT(AllReduceSeconds(group, bytes) <= 2 * HalfAllReduceSeconds(group, bytes) + 1e-12);
}

// ---- Clusters

TEST(Cluster, AllReadyOnesAreComplete) {
  for (const std::string& name : ClusterNames()) {
    const Cluster cluster = MakeCluster({.cluster = name});
    EXPECT_EQ(cluster.name, name);
    EXPECT_EQ(cluster.nodes, 1);
    EXPECT_GT(cluster.memory(), 0) << name;
    EXPECT_GT(cluster.device.RateOf(DType::kFloat32), 1e9) << name;
    EXPECT_GE(cluster.device.RateOf(DType::kBFloat16), 1e9) << name;
    EXPECT_GT(cluster.within.bandwidth, 0) << name;
    EXPECT_GT(cluster.between.bandwidth, 0) << name;
    EXPECT_THAT(cluster.Describe(), HasSubstr("1 node of ")) << name;
  }
}

TEST(Cluster, FlagsChangeIt) {
  const Cluster cluster = MakeCluster(
      {.cluster = "8xA100-80", .gpus = 1024, .memory = "40GB", .link = "nvlink4,10GB/s:20us"});
  EXPECT_EQ(cluster.nodes, 128);
  EXPECT_EQ(cluster.devices_per_node, 8);
  EXPECT_EQ(cluster.device.memory, 40e9);
  EXPECT_EQ(cluster.within.bandwidth, 0.8 * 450e9);
  EXPECT_EQ(cluster.between, (LinkRates{20e-6, 10e9}));
  const Cluster few = MakeCluster({.gpus = 4, .link = "pcie4"});
  EXPECT_EQ(few.nodes, 1);
  EXPECT_EQ(few.devices_per_node, 4);
  EXPECT_EQ(few.within.bandwidth, 0.8 * 31.5e9) << "one node has no other link";
}

TEST(Cluster, ATableDescribesIt) {
  const Value table = Value::FromJson(R"({"base": "8xH100", "nodes": 2, "devices_per_node": 4,
      "memory": "96GB", "flops": {"float32": "60T"}, "reserve": 0, "efficiency": 0.4,
      "within": "nvlink3", "between": {"bandwidth": "12.5GB/s", "latency": "20us"}})");
  const Cluster cluster = MakeCluster({.cluster = table});
  EXPECT_EQ(cluster.devices(), 8);
  EXPECT_EQ(cluster.memory(), 96e9);
  EXPECT_DOUBLE_EQ(cluster.device.RateOf(DType::kFloat32), 0.4 * 60e12);
  EXPECT_DOUBLE_EQ(cluster.device.RateOf(DType::kBFloat16), 0.4 * 989e12);
  EXPECT_EQ(cluster.between, (LinkRates{20e-6, 12.5e9}));
}

TEST(Cluster, PartsMayHaveDevicesOfTheirOwn) {
  const Cluster cluster = MakeCluster({.cluster = "4*8xH100 + 2*8xA100-80"});
  EXPECT_EQ(cluster.devices(), 48);
  ASSERT_EQ(cluster.kinds.size(), 2U);
  EXPECT_EQ(cluster.kinds[1].nodes, 2);
  EXPECT_EQ(cluster.kinds[1].device.name, "A100 80GB");
  EXPECT_EQ(cluster.between.bandwidth, 0.8 * 25e9) << "that of the slower part";
  EXPECT_THAT(cluster.Describe(), AllOf(HasSubstr("4 nodes of 8 x H100 80GB with 78.8 GiB"),
                                        HasSubstr(" and 2 nodes of 8 x A100 80GB")));
  const Value parts = Value::FromJson(R"(["4*8xH100", {"base": "8xA100-80", "nodes": 2}])");
  EXPECT_EQ(MakeCluster({.cluster = parts}).Describe(), cluster.Describe());
  EXPECT_TRUE(MakeCluster({.cluster = "3*8xH100"}).kinds.empty());
  const auto error = [](const char* text, int gpus) {
    return ConfigErrorOf([&] { MakeCluster({.cluster = text, .gpus = gpus}); });
  };
  EXPECT_THAT(error("8xH100+4xL4", 0), HasSubstr("8xH100 has 8, 4xL4 has 4"));
  EXPECT_THAT(error("x*8xH100", 0), HasSubstr("a number of nodes before '*'"));
  EXPECT_THAT(error("8xH100+8xA10", 0), HasSubstr("did you mean \"8xA100-"));
  EXPECT_THAT(error("8xH100+8xA100-80", 8), HasSubstr("have 16 devices; leave out gpus"));
}

TEST(Cluster, WrongOnesAreRefusedByName) {
  const auto error = [](const ClusterRequest& request) {
    return ConfigErrorOf([&] { MakeCluster(request); });
  };
  const auto table = [&](const char* json) { return error({.cluster = Value::FromJson(json)}); };
  EXPECT_THAT(error({.cluster = "8xH10"}), HasSubstr("did you mean \"8xH100\"?"));
  EXPECT_THAT(error({.cluster = 8}), HasSubstr("cluster: expected a name"));
  EXPECT_THAT(error({.gpus = 12}), HasSubstr("gpus = 12 are no whole number of nodes with 8"));
  EXPECT_THAT(error({.link = "nvlink"}), HasSubstr("did you mean \"nvlink2\"?"));
  EXPECT_THAT(error({.link = "1GB/s,2GB/s,3GB/s"}), HasSubstr("link: expected one link"));
  EXPECT_THAT(error({.link = "0GB/s"}), HasSubstr("bandwidth must be above 0"));
  EXPECT_THAT(error({.memory = "1GiB"}), HasSubstr("are not for the training"));
  EXPECT_THAT(table(R"({"node": 2})"),
              AllOf(HasSubstr("node"), HasSubstr("did you mean \"nodes\"")));
  EXPECT_THAT(table(R"({"memory": "lots"})"), HasSubstr("cluster.memory: expected"));
  EXPECT_THAT(table(R"({"flops": {"floaty": 1}})"), HasSubstr("floaty"));
  EXPECT_THAT(table(R"({"flops": 0})"), HasSubstr("must be above 0"));
  EXPECT_THAT(table(R"({"between": {"speed": 1}})"), HasSubstr("speed"));
}

/// Writes a file with the links of these pairs and returns its path.
std::string FileOf(std::vector<std::string> hosts, std::vector<LinkRates> pairs) {
  const std::string path =
      (std::filesystem::path(::testing::TempDir()) / "cluster_test_links.json").string();
  std::ofstream(path) << ToValue(LinkTable("gloo", std::move(hosts), std::move(pairs))).ToJson();
  return path;
}

TEST(Cluster, TakesMeasuredLinks) {
  const LinkRates near = {1e-5, 2e9}, far = {1e-4, 1e8}, farther = {2e-4, 5e7};
  const std::string path = FileOf({"a", "a", "b", "b"}, {near, far, far, farther, far, near});
  const Cluster cluster = MakeCluster({.cluster = "cpu", .links = path});
  EXPECT_EQ(cluster.nodes, 2);
  EXPECT_EQ(cluster.devices_per_node, 2);
  EXPECT_EQ(cluster.LinkOf(3, 2), near);
  EXPECT_EQ(cluster.LinkOf(2, 1), farther);
  EXPECT_EQ(cluster.GroupOf(0, 2, 1).within, near);
  const Group all = cluster.GroupOf(0, 4, 1);
  EXPECT_EQ(all.per_node, 2);
  EXPECT_EQ(all.within, near);
  EXPECT_EQ(all.between, farther);
  EXPECT_THAT(cluster.Describe(), HasSubstr("50 MB/s to 2 GB/s, as measured"));
  const std::string uneven = FileOf({"a", "a", "b"}, {near, far, far});
  EXPECT_EQ(MakeCluster({.cluster = "cpu", .links = uneven}).nodes, 1);
  EXPECT_THAT(ConfigErrorOf([&] { MakeCluster({.gpus = 4, .links = uneven}); }),
              HasSubstr("between 3 ranks, the cluster has 4 devices; leave out gpus"));
  EXPECT_THAT(ConfigErrorOf([&] { MakeCluster({.link = "ndr", .links = uneven}); }),
              HasSubstr("give one of them"));
}

RC_GTEST_PROP(Cluster, AUniformTableIsTheScalar, ()) {
  Cluster stated;
  stated.nodes = *rc::gen::inRange(1, 4);
  stated.devices_per_node = *rc::gen::inRange(stated.nodes == 1 ? 2 : 1, 5);
  stated.within = {1e-5, 2e9};
  stated.between = {1e-4, 1e8};
  const int devices = stated.devices();
  std::vector<LinkRates> pairs;
  for (int a = 0; a < devices; ++a) {
    for (int b = a + 1; b < devices; ++b) pairs.push_back(stated.LinkOf(a, b));
  }
  Cluster measured = stated;
  measured.links = std::make_shared<const LinkTable>(
      "gloo", std::vector<std::string>(static_cast<size_t>(devices), "a"), pairs);
  const int stride = *rc::gen::inRange(1, devices + 1);
  const int size = *rc::gen::inRange(1, (devices - 1) / stride + 2);
  const int first = *rc::gen::inRange(0, devices - (size - 1) * stride);
  const Group a = stated.GroupOf(first, size, stride), b = measured.GroupOf(first, size, stride);
  const double bytes = *rc::gen::inRange(1, 1 << 30);
  for (auto seconds : {HalfAllReduceSeconds, AllReduceSeconds}) {
    RC_ASSERT(seconds(a, bytes) == seconds(b, bytes));
  }
}

RC_GTEST_PROP(Cluster, GroupsAreCountedRight, ()) {
  Cluster cluster;
  cluster.nodes = 64;
  cluster.devices_per_node = *rc::gen::inRange(1, 9);
  const int stride = *rc::gen::inRange(1, 5), size = *rc::gen::inRange(1, 12);
  const int first = *rc::gen::inRange(0, 20);
  const Group group = cluster.GroupOf(first, size, stride);
  std::map<int, int> members;
  for (int i = 0; i < size; ++i) ++members[(first + i * stride) / cluster.devices_per_node];
  int least = size, most = 0;
  for (const auto& [node, count] : members)
    least = std::min(least, count), most = std::max(most, count);
  RC_ASSERT(group.per_node == least);
  RC_ASSERT(group.nodes == (size + least - 1) / least);
  if (least == most) RC_ASSERT(group.size() == size);
}

}  // namespace
}  // namespace strata::search
