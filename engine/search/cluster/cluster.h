// Cluster: the machines that a plan is made for, which need not be here. A plain value: from a
// ready one by name, from a table of a script, changed by flags.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"
#include "engine/cost/link_table.h"
#include "engine/search/cluster/collective_cost.h"

namespace strata::search {

/// One GPU, or one core of a machine without.
struct Device {
  std::string name;
  double memory = 0;            ///< bytes
  double memory_bandwidth = 0;  ///< bytes per second
  /// Operations per second at the best, by dtype ("float32", "bfloat16"); "float32" is there.
  std::map<std::string, double> flops;
  /// The share of that, and of the memory's bandwidth, which large layers reach.
  double efficiency = 0.5;
  double launch = 0;  ///< seconds that a layer takes at least, for each pass

  /// Operations per second that large layers of this dtype reach; float32's where it is not known.
  double RateOf(DType dtype) const;
};

struct Cluster {
  std::string name;
  int nodes = 1;
  int devices_per_node = 1;
  Device device;
  double reserve = 0;  ///< bytes of each device that a training cannot have: context, libraries
  LinkRates within;    ///< between two devices of one node
  LinkRates between;   ///< of different nodes
  /// Between each two devices, where that was measured; null: pairs differ by their nodes alone.
  std::shared_ptr<const LinkTable> links = {};

  int devices() const { return nodes * devices_per_node; }
  /// Bytes of each device that a training can have.
  double memory() const { return device.memory > reserve ? device.memory - reserve : 0; }
  /// The link between two devices of the cluster, numbered node by node.
  const LinkRates& LinkOf(int a, int b) const;
  /// The group of `size` devices, `stride` apart, the first of which has that number: what
  /// collective_cost.h needs of it. Where nodes have different numbers of them, the least counts,
  /// and where links were measured, the slowest within a node and between nodes.
  Group GroupOf(int first, int size, int stride) const;

  /// "128 nodes of 8 x H100 80GB, 450 GB/s within, 50 GB/s between".
  std::string Describe() const;

 private:
  void ApplyMeasuredLinks(int first, int size, int stride, Group& group) const;
};

/// The names of ready clusters, each one node: "8xA100-80", "8xH100", "1xL4", "cpu", ...
std::vector<std::string> ClusterNames();

/// What flags and tables say; each may be left out (null, 0).
struct ClusterRequest {
  /// A name of ClusterNames(), or a table {base=NAME, nodes=, devices_per_node=, memory="80GB",
  /// memory_bandwidth="2TB/s", flops=NUMBER or {float32=, bfloat16=}, efficiency=, launch="5us",
  /// reserve="1GiB", within=LINK, between=LINK}; without `base` it begins with the default. A LINK
  /// is a name ("nvlink4", "ndr"), "25GB/s", "25GB/s:5us" or {bandwidth=, latency=}.
  Value cluster = {};
  int gpus = 0;           ///< devices in all; whole nodes, or a part of one
  Value memory = {};      ///< of each device: "80GB"
  std::string link = {};  ///< LINK between nodes, or two with a comma: within, between
  /// A file of measured links (link_table.h). Where nothing says how many devices there are, they
  /// are its ranks.
  std::string links = {};
};

/// The cluster that is asked for; "8xH100" and as many nodes as the devices need where nothing is
/// said. Throws ConfigError naming the key, what was expected, what came and the nearest name.
Cluster MakeCluster(const ClusterRequest& request);

}  // namespace strata::search
