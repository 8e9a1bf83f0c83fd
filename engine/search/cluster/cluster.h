// Cluster: the machines that a plan is made for; they need not exist here. A plain value, made from
// a ready cluster's name or a script's table, and changed by flags.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"
#include "engine/cost/link_table.h"
#include "engine/job/rank_abilities.h"
#include "engine/search/cluster/collective_cost.h"

namespace strata::search {

/// One GPU, or one core of a machine without GPUs.
struct Device {
  std::string name;
  double memory = 0;            ///< bytes
  double memory_bandwidth = 0;  ///< bytes per second
  /// Peak operations per second by dtype ("float32", "bfloat16"); "float32" is always there.
  std::map<std::string, double> flops;
  /// The share of these peaks, and of the memory bandwidth, that large layers reach.
  double efficiency = 0.5;
  double launch = 0;  ///< least seconds of a layer, for each pass

  /// Operations per second that large layers of this dtype reach; float32's if the dtype has no
  /// rate.
  double RateOf(DType dtype) const;
};

/// Neighbouring nodes of a cluster whose devices are alike.
struct NodeKind {
  int nodes = 1;
  Device device;
  double reserve = 0;
};

struct Cluster {
  std::string name;
  int nodes = 1;
  int devices_per_node = 1;
  Device device;
  double reserve = 0;  ///< bytes per device for context and libraries, which a training cannot use
  LinkRates within;    ///< between two devices of one node
  LinkRates between;   ///< between devices of different nodes
  /// The measured links between each two devices; null: a link depends only on whether both devices
  /// are on one node.
  std::shared_ptr<const LinkTable> links = {};
  /// The kinds of nodes in their order, if devices differ; `device` and `reserve` are those of the
  /// first kind. All nodes have equally many devices.
  std::vector<NodeKind> kinds = {};
  /// What each device can do beside the others, set by SetAbilities(): its speed relative to
  /// `device` for the job at hand, and the bytes that a training can use. Empty if all are alike.
  std::vector<RankAbility> abilities = {};

  int devices() const { return nodes * devices_per_node; }
  /// Bytes of each device that a training can use.
  double memory() const { return device.memory > reserve ? device.memory - reserve : 0; }
  /// The same of one device.
  double MemoryOf(int device) const {
    return abilities.empty() ? memory() : static_cast<double>(abilities[device].memory);
  }
  /// The link between two devices of the cluster, which are numbered node by node.
  const LinkRates& LinkOf(int a, int b) const;
  /// The group of `size` devices, `stride` apart, beginning with device `first`, as
  /// collective_cost.h needs it. If its nodes hold different numbers of the devices, the smallest
  /// number counts; if links were measured, the slowest within a node and the slowest between
  /// nodes.
  Group GroupOf(int first, int size, int stride) const;

  /// "128 nodes of 8 x H100 80GB, 450 GB/s within, 50 GB/s between".
  std::string Describe() const;

 private:
  void ApplyMeasuredLinks(int first, int size, int stride, Group& group) const;
};

/// The names of ready clusters, each one node: "8xA100-80", "8xH100", "1xL4", "cpu", ...
std::vector<std::string> ClusterNames();

/// What flags and tables say about the cluster; each field may be left out (null, 0, "").
struct ClusterRequest {
  /// A name of ClusterNames(), several with numbers of nodes ("4*8xH100+2*8xA100-80"), a list of
  /// names and tables, or a table {base=NAME, nodes=, devices_per_node=, memory="80GB",
  /// memory_bandwidth="2TB/s", flops=NUMBER or {float32=, bfloat16=}, efficiency=, launch="5us",
  /// reserve="1GiB", within=LINK, between=LINK}. Without `base` it starts from the default cluster.
  /// A LINK is a name ("nvlink4", "ndr"), "25GB/s", "25GB/s:5us" or {bandwidth=, latency=}.
  Value cluster = {};
  int gpus = 0;           ///< devices in all: whole nodes, or a part of one
  Value memory = {};      ///< of each device: "80GB"
  std::string link = {};  ///< LINK between nodes, or two, "within,between"
  /// The path of a file of measured links (link_table.h). If no other field gives the number of
  /// devices, it is the file's number of ranks.
  std::string links = {};
};

/// Makes the requested cluster. The default is "8xH100" with as many nodes as the devices need.
/// Throws ConfigError naming the key, what was expected, what came and the nearest name.
Cluster MakeCluster(const ClusterRequest& request);

}  // namespace strata::search
