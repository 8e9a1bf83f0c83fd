#include "engine/search/cluster/cluster.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/fields/quantity.h"
#include "engine/base/machine/cores.h"
#include "engine/base/machine/memory.h"
#include "engine/base/text.h"

namespace strata::search {
namespace {

constexpr double kGiga = 1e9, kTera = 1e12, kGibi = 1024.0 * 1024 * 1024;

// ---- Links

struct NamedLink {
  std::string_view name;
  double bandwidth;  ///< of the data sheet: bytes per second and direction
  double latency;    ///< seconds of a small message between two ranks
};

// Sources of the bandwidths: NVIDIA's data sheets of V100, A100, H100 and B200 (the sum of both
// directions of NVLink, halved), PCI-SIG's rates for 16 lanes, and the rates per port of the
// InfiniBand Trade Association and IEEE 802.3. The latencies are those of messages of a few bytes
// over NCCL and Gloo, to one digit; the wire alone takes 1 to 2 us.
constexpr std::array kLinks = {
    NamedLink{"nvlink2", 150 * kGiga, 8e-6},  NamedLink{"nvlink3", 300 * kGiga, 8e-6},
    NamedLink{"nvlink4", 450 * kGiga, 8e-6},  NamedLink{"nvlink5", 900 * kGiga, 8e-6},
    NamedLink{"pcie3", 15.75 * kGiga, 10e-6}, NamedLink{"pcie4", 31.5 * kGiga, 10e-6},
    NamedLink{"pcie5", 63 * kGiga, 10e-6},    NamedLink{"edr", 12.5 * kGiga, 15e-6},
    NamedLink{"hdr", 25 * kGiga, 15e-6},      NamedLink{"ndr", 50 * kGiga, 15e-6},
    NamedLink{"xdr", 100 * kGiga, 15e-6},     NamedLink{"10gbe", 1.25 * kGiga, 50e-6},
    NamedLink{"25gbe", 3.125 * kGiga, 50e-6}, NamedLink{"100gbe", 12.5 * kGiga, 30e-6},
    NamedLink{"loopback", 3 * kGiga, 30e-6},
};

// The share of a link's rate that large messages reach. 80 % is usual in nccl-tests (busbw of
// sendrecv and all_reduce against the data sheet).
constexpr double kLinkEfficiency = 0.8;

const NamedLink* FindLink(std::string_view name) {
  const auto* found = std::find_if(kLinks.begin(), kLinks.end(),
                                   [&](const NamedLink& link) { return link.name == name; });
  return found == kLinks.end() ? nullptr : found;
}

LinkRates LinkNamed(std::string_view name) {
  const NamedLink* link = FindLink(name);
  return {link->latency, kLinkEfficiency * link->bandwidth};
}

constexpr double kLatencyUnlessSaid = 10e-6;

/// Parses "25GB/s", "25GB/s:5us" or the name of a link.
LinkRates ParseLink(const std::string& text, const std::string& what) {
  if (FindLink(text) != nullptr) return LinkNamed(text);
  const bool is_rate =
      !text.empty() && (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '.');
  if (!is_rate) {
    std::vector<std::string> names;
    for (const NamedLink& link : kLinks) names.emplace_back(link.name);
    throw ConfigError(Str(what, ": there is no link \"", text, '"', DidYouMean(text, names, 20),
                          "; a rate such as \"25GB/s\" or \"25GB/s:5us\" is possible, too"));
  }
  const size_t colon = text.find(':');
  LinkRates link{kLatencyUnlessSaid, ParseBandwidth(text.substr(0, colon), what)};
  if (colon != std::string::npos) {
    link.latency = ParseSeconds(text.substr(colon + 1), Str(what, ", latency"));
  }
  if (link.bandwidth == 0) throw ConfigError(what + ": the bandwidth must be above 0");
  return link;
}

LinkRates LinkOfValue(const Value& value, const std::string& what) {
  if (value.is_string()) return ParseLink(value.as_string(), what);
  static const FieldTable kFields = {Field::Any("bandwidth", "bytes per second, or \"25GB/s\""),
                                     Field::Any("latency", "seconds, or \"5us\"").Optional()};
  Call call = CallOf(value);
  call.subject = what;
  const Value fields = Canonicalize(kFields, call);
  LinkRates link{kLatencyUnlessSaid, ParseBandwidth(fields["bandwidth"], what + ".bandwidth")};
  if (!fields["latency"].is_null()) {
    link.latency = ParseSeconds(fields["latency"], what + ".latency");
  }
  if (link.bandwidth == 0) throw ConfigError(what + ".bandwidth must be above 0");
  return link;
}

// ---- Devices

// The share of a data sheet's rate that large products reach. Whole trainings reach 52 % on A100s
// (Narayanan et al., arXiv:2104.04473), so the products alone reach a little more.
constexpr double kEfficiency = 0.55;
// Seconds for the launch of the few kernels of a layer.
constexpr double kLaunch = 10e-6;
// Bytes for the CUDA context, the code of LibTorch's kernels and NCCL's buffers; nvidia-smi shows
// 0.5 to 1.5 GB for an idle rank of a job.
constexpr double kReserve = 1.25 * kGibi;

/// A GPU with the dense rates of NVIDIA's data sheets. TF32, the tensor cores' float32, is not
/// used, because PyTorch does not use it by default.
Device Gpu(std::string name, double memory, double memory_bandwidth, double float32, double half,
           double bfloat16) {
  return {.name = std::move(name),
          .memory = memory * kGibi,
          .memory_bandwidth = memory_bandwidth * kGiga,
          .flops = {{"float32", float32 * kTera},
                    {"float16", half * kTera},
                    {"bfloat16", bfloat16 * kTera}},
          .efficiency = kEfficiency,
          .launch = kLaunch};
}

/// A core of this machine. Its rate is estimated from its clock and its vector width, with two
/// fused multiply-adds per cycle as usual for server cores.
Device CpuCore(int cores) {
  std::ifstream info("/proc/cpuinfo");
  double clock = 2.5e9, width = 4;  // SSE
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (line.starts_with("cpu MHz")) clock = 1e6 * std::atof(line.c_str() + colon + 1);
    if (!line.starts_with("flags")) continue;
    if (line.find(" avx2 ") != std::string::npos) width = 8;
    if (line.find(" avx512f ") != std::string::npos) width = 16;
    break;
  }
  const double flops = clock * width * 4;  // two units; a multiply-add counts as two operations
  return {.name = "core of this machine",
          .memory = static_cast<double>(ReadMachineMemory().total) / cores,
          .memory_bandwidth = 10 * kGiga,
          .flops = {{"float32", flops}},
          .efficiency = kEfficiency,
          .launch = 5e-6};
}

// ---- Ready clusters

struct Ready {
  std::string_view name;
  int devices;
  Device (*device)();
  std::string_view within;
  std::string_view between;
};

// Memory in GiB, its bandwidth in GB/s, rates in TFLOP/s, from NVIDIA's data sheets (V100 SXM2,
// A100 SXM4, H100 and H200 SXM5, B200 in HGX, L4, L40S, T4, RTX 4090). The machines are DGX-1V (4
// EDR ports for 8 GPUs, that is half a port each), DGX A100 and H100 (a port for each GPU), cloud
// machines with L4 and T4 (100 and 50 Gbit/s), and a desktop with two RTX 4090.
const std::array kReady = {
    Ready{"8xH100", 8, [] { return Gpu("H100 80GB", 80, 3350, 67, 989, 989); }, "nvlink4", "ndr"},
    Ready{"8xH200", 8, [] { return Gpu("H200 141GB", 131, 4800, 67, 989, 989); }, "nvlink4", "ndr"},
    Ready{"8xB200", 8, [] { return Gpu("B200 180GB", 167, 8000, 75, 2250, 2250); }, "nvlink5",
          "ndr"},
    Ready{"8xA100-80", 8, [] { return Gpu("A100 80GB", 80, 2039, 19.5, 312, 312); }, "nvlink3",
          "hdr"},
    Ready{"8xA100-40", 8, [] { return Gpu("A100 40GB", 40, 1555, 19.5, 312, 312); }, "nvlink3",
          "hdr"},
    Ready{"8xV100-32", 8, [] { return Gpu("V100 32GB", 32, 900, 15.7, 125, 15.7); }, "nvlink2",
          "edr"},
    Ready{"8xL40S", 8, [] { return Gpu("L40S 48GB", 45, 864, 91.6, 362, 362); }, "pcie4", "100gbe"},
    Ready{"8xL4", 8, [] { return Gpu("L4 24GB", 22.5, 300, 30.3, 121, 121); }, "pcie4", "100gbe"},
    Ready{"4xL4", 4, [] { return Gpu("L4 24GB", 22.5, 300, 30.3, 121, 121); }, "pcie4", "25gbe"},
    Ready{"1xL4", 1, [] { return Gpu("L4 24GB", 22.5, 300, 30.3, 121, 121); }, "pcie4", "10gbe"},
    Ready{"4xT4", 4, [] { return Gpu("T4 16GB", 15, 320, 8.1, 65, 8.1); }, "pcie3", "25gbe"},
    Ready{"2xRTX4090", 2, [] { return Gpu("RTX 4090 24GB", 24, 1008, 82.6, 165, 165); }, "pcie4",
          "10gbe"},
};

constexpr std::string_view kCpu = "cpu";

std::optional<Cluster> FindCluster(const std::string& name) {
  if (name == kCpu) {
    const int cores = MachineCores();
    return Cluster{.name = name,
                   .devices_per_node = cores,
                   .device = CpuCore(cores),
                   .reserve = 0.3 * kGibi,
                   .within = LinkNamed("loopback"),
                   .between = LinkNamed("10gbe")};
  }
  for (const Ready& ready : kReady) {
    if (ready.name != name) continue;
    return Cluster{.name = name,
                   .devices_per_node = ready.devices,
                   .device = ready.device(),
                   .reserve = kReserve,
                   .within = LinkNamed(ready.within),
                   .between = LinkNamed(ready.between)};
  }
  return std::nullopt;
}

Cluster ClusterNamed(const std::string& name) {
  if (auto cluster = FindCluster(name)) return *std::move(cluster);
  throw ConfigError(Str("there is no cluster \"", name, '"', DidYouMean(name, ClusterNames(), 20)));
}

// ---- Tables

Field Positive(const char* name, const char* help) {
  return Field::Int(name, help).AtLeast(1).AtMost(1 << 20).Optional();
}

const FieldTable& ClusterFields() {
  static const FieldTable kFields = {
      Field::String("base", "the ready cluster that is changed").Optional(),
      Positive("nodes", "machines"),
      Positive("devices_per_node", "devices of each"),
      Field::Any("memory", "of a device, \"80GB\"").Optional(),
      Field::Any("memory_bandwidth", "of a device, \"2TB/s\"").Optional(),
      Field::Any("flops", "operations per second, \"19.5T\", or by dtype {float32=, bfloat16=}")
          .Optional(),
      Field::Number("efficiency", "the share of that which is reached")
          .Above(0)
          .AtMost(1)
          .Optional(),
      Field::Any("launch", "of each layer, \"10us\"").Optional(),
      Field::Any("reserve", "memory of a device that a training cannot have, \"1GiB\"").Optional(),
      Field::Any("within", "the link between devices of a node").Optional(),
      Field::Any("between", "the link between nodes").Optional(),
  };
  return kFields;
}

void SetFlops(const Value& value, Device& device) {
  if (!value.is_map()) {
    device.flops = {{"float32", ParseRate(value, "cluster.flops")}};
  } else {
    for (const auto& [dtype, rate] : value.as_map()) {
      device.flops[DTypeName(ParseDType(dtype))] = ParseRate(rate, "cluster.flops." + dtype);
    }
  }
  for (const auto& [dtype, rate] : device.flops) {
    if (rate == 0) throw ConfigError(Str("cluster.flops: ", dtype, " must be above 0"));
  }
}

Cluster FromTable(const Value& table) {
  Call call = CallOf(table);
  call.subject = "the cluster";
  call.noun = "key";
  const Value given = CanonicalizeGiven(ClusterFields(), call);
  const bool has_base = !given["base"].is_null();
  Cluster cluster = ClusterNamed(has_base ? given["base"].as_string() : "8xH100");
  if (!has_base) cluster.name = "your cluster", cluster.device.name = "device";
  Device& device = cluster.device;
  const auto set = [&](const char* key, auto& member, auto read) {
    const Value& value = given[key];
    if (!value.is_null()) member = read(value, Str("cluster.", key));
  };
  const auto count = [](const Value& value, const std::string&) {
    return static_cast<int>(value.as_int());
  };
  set("nodes", cluster.nodes, count);
  set("devices_per_node", cluster.devices_per_node, count);
  set("memory", device.memory, ParseBytes);
  set("memory_bandwidth", device.memory_bandwidth, ParseBandwidth);
  set("launch", device.launch, ParseSeconds);
  set("reserve", cluster.reserve, ParseBytes);
  set("within", cluster.within, LinkOfValue);
  set("between", cluster.between, LinkOfValue);
  if (!given["efficiency"].is_null()) device.efficiency = given["efficiency"].as_double();
  if (!given["flops"].is_null()) SetFlops(given["flops"], device);
  if (device.memory_bandwidth == 0) throw ConfigError("cluster.memory_bandwidth must be above 0");
  return cluster;
}

/// Reads "8xH100" or "4*8xH100".
Cluster FromText(const std::string& text) {
  const size_t star = text.find('*');
  if (star == text.npos) return ClusterNamed(text);
  const std::string count(Trim(std::string_view(text).substr(0, star)));
  const auto nodes = ParseWhole(count, 1, 1 << 20);
  if (!nodes) {
    throw ConfigError(
        Str("cluster: expected a number of nodes before '*', as in 4*8xH100, got \"", text, '"'));
  }
  Cluster cluster = ClusterNamed(std::string(Trim(std::string_view(text).substr(star + 1))));
  cluster.nodes = *nodes;
  return cluster;
}

/// A cluster of the nodes of all parts. A link between two nodes is as slow as that of the slower
/// part; so is a link within a node, for simplicity.
Cluster Mixed(const std::vector<Cluster>& parts) {
  Cluster mixed = parts.front();
  mixed.nodes = 0;
  for (const Cluster& part : parts) {
    if (part.devices_per_node != mixed.devices_per_node) {
      throw ConfigError(Str("cluster: all nodes must have equally many devices; ", mixed.name,
                            " has ", mixed.devices_per_node, ", ", part.name, " has ",
                            part.devices_per_node));
    }
    mixed.nodes += part.nodes;
    mixed.within = mixed.within.SlowerOf(part.within);
    mixed.between = mixed.between.SlowerOf(part.between);
    mixed.kinds.push_back({part.nodes, part.device, part.reserve});
  }
  if (parts.size() == 1) mixed.kinds.clear();
  return mixed;
}

Cluster BaseOf(const Value& cluster) {
  if (cluster.is_null()) return ClusterNamed("8xH100");
  if (cluster.is_string()) {
    std::vector<Cluster> parts;
    for (const std::string& text : Split(cluster.as_string(), '+')) {
      parts.push_back(FromText(std::string(Trim(text))));
    }
    return Mixed(parts);
  }
  if (cluster.is_map()) return FromTable(cluster);
  if (cluster.is_list() && !cluster.as_list().empty()) {
    std::vector<Cluster> parts;
    for (const Value& part : cluster.as_list()) parts.push_back(BaseOf(part));
    return Mixed(parts);
  }
  throw ConfigError(Str("cluster: expected a name (", Join(ClusterNames(), ", "),
                        "), a table of keys or a list of them, got ", cluster.Describe()));
}

/// Sets the number of nodes for `gpus` devices, or takes a part of one node.
void SetDevices(int gpus, Cluster& cluster) {
  if (!cluster.kinds.empty()) {
    if (gpus == cluster.devices()) return;
    throw ConfigError(Str("gpus = ", gpus, ", but the parts of the cluster have ",
                          Plural(cluster.devices(), "device"), "; leave out gpus"));
  }
  if (gpus <= cluster.devices_per_node) {
    cluster.nodes = 1;
    cluster.devices_per_node = gpus;
    return;
  }
  if (gpus % cluster.devices_per_node != 0) {
    throw ConfigError(Str("gpus = ", gpus, " are no whole number of nodes with ",
                          Plural(cluster.devices_per_node, "device"), " each"));
  }
  cluster.nodes = gpus / cluster.devices_per_node;
}

void SetLinks(const std::string& text, Cluster& cluster) {
  const std::vector<std::string> links = Split(text, ',');
  if (links.size() > 2) {
    throw ConfigError(
        Str("link: expected one link, between nodes, or two, within and between, got ", "\"", text,
            '"'));
  }
  if (links.size() == 2) cluster.within = ParseLink(std::string(Trim(links[0])), "link");
  LinkRates& last = cluster.nodes > 1 || links.size() == 2 ? cluster.between : cluster.within;
  last = ParseLink(std::string(Trim(links.back())), "link");
}

/// Groups the devices into nodes of equal size if the ranks are placed so on their machines; else
/// all devices are one node.
void SetNodes(const LinkTable& links, Cluster& cluster) {
  std::vector<int> sizes;
  for (size_t r = 0; r < links.hosts().size(); ++r) {
    const bool is_same = r > 0 && links.hosts()[r] == links.hosts()[r - 1];
    is_same ? ++sizes.back() : sizes.emplace_back(1);
  }
  const bool is_even = std::ranges::count(sizes, sizes.front()) == std::ssize(sizes);
  cluster.nodes = is_even ? static_cast<int>(sizes.size()) : 1;
  cluster.devices_per_node = links.ranks() / cluster.nodes;
}

void SetMeasured(const ClusterRequest& request, Cluster& cluster) {
  if (request.links.empty()) return;
  if (!request.link.empty()) {
    throw ConfigError("link states what links does as measured: give one of them");
  }
  auto links = std::make_shared<const LinkTable>(ReadLinksFile(request.links));
  if (request.gpus == 0 && !request.cluster.is_map() && cluster.kinds.empty())
    SetNodes(*links, cluster);
  if (links->ranks() < cluster.devices()) {
    throw ConfigError(Str("links: ", request.links, " was measured between ",
                          Plural(links->ranks(), "rank"), ", the cluster has ", cluster.devices(),
                          " devices; leave out gpus, or say gpus=", links->ranks()));
  }
  cluster.links = std::move(links);
}

/// "1.2 GB/s", or "1.2 GB/s to 2.5 GB/s" from the slowest to the fastest pair.
std::string RangeText(const LinkTable& links, int devices) {
  double least = 0, most = 0;
  for (int a = 0; a < devices; ++a) {
    for (int b = a + 1; b < devices; ++b) {
      const double bandwidth = links.Of(a, b).bandwidth;
      least = most == 0 ? bandwidth : std::min(least, bandwidth);
      most = std::max(most, bandwidth);
    }
  }
  const std::string from = FormatBandwidth(least), to = FormatBandwidth(most);
  return from == to ? from : Str(from, " to ", to);
}

}  // namespace

double Device::RateOf(DType dtype) const {
  const auto found = flops.find(DTypeName(dtype));
  return efficiency * (found == flops.end() ? flops.at("float32") : found->second);
}

const LinkRates& Cluster::LinkOf(int a, int b) const {
  if (links && a != b) return links->Of(a, b);
  return a / devices_per_node == b / devices_per_node ? within : between;
}

void Cluster::ApplyMeasuredLinks(int first, int size, int stride, Group& group) const {
  LinkRates near, far;
  for (int i = 0; i < size; ++i) {
    for (int j = i + 1; j < size; ++j) {
      const int a = first + i * stride, b = first + j * stride;
      LinkRates& slowest = a / devices_per_node == b / devices_per_node ? near : far;
      slowest = slowest.SlowerOf(links->Of(a, b));
    }
  }
  group.within = near;
  group.between = far;
}

Group Cluster::GroupOf(int first, int size, int stride) const {
  Group group{1, 1, within, between};
  if (links) ApplyMeasuredLinks(first, size, stride, group);
  const bool is_even = devices_per_node % stride == 0 && first % devices_per_node < stride;
  const int whole = devices_per_node / stride;
  if (is_even && (size <= whole || size % whole == 0)) {  // the usual case, without a loop
    group.per_node = std::min(size, whole);
    group.nodes = size / group.per_node;
    return group;
  }
  int here = 0, node = first / devices_per_node, least = size;
  group.nodes = 1;
  for (int i = 0; i < size; ++i) {
    const int of = (first + i * stride) / devices_per_node;
    if (of != node) {
      least = std::min(least, here);
      ++group.nodes;
      node = of;
      here = 0;
    }
    ++here;
  }
  if (group.nodes == 1) {
    group.per_node = size;
    return group;
  }
  group.per_node = std::max(1, std::min(least, here));
  group.nodes = (size + group.per_node - 1) / group.per_node;
  return group;
}

std::string Cluster::Describe() const {
  const std::string stated =
      Str(FormatBandwidth(within.bandwidth), " within",
          nodes > 1 ? Str(", ", FormatBandwidth(between.bandwidth), " between") : "");
  const std::vector<NodeKind> all =
      kinds.empty() ? std::vector<NodeKind>{{nodes, device, reserve}} : kinds;
  std::vector<std::string> parts;
  for (const NodeKind& kind : all) {
    parts.push_back(Str(Plural(kind.nodes, "node"), " of ", devices_per_node, " x ",
                        kind.device.name, " with ", FormatBytes(kind.device.memory - kind.reserve),
                        " for the training"));
  }
  return Str(Join(parts, " and "), ", ",
             devices() == 1 ? "alone"
             : links        ? RangeText(*links, devices()) + ", as measured"
                            : stated);
}

std::vector<std::string> ClusterNames() {
  std::vector<std::string> names;
  for (const Ready& ready : kReady) names.emplace_back(ready.name);
  names.emplace_back(kCpu);
  return names;
}

Cluster MakeCluster(const ClusterRequest& request) {
  Cluster cluster = BaseOf(request.cluster);
  if (request.gpus > 0) SetDevices(request.gpus, cluster);
  if (!request.memory.is_null()) {
    cluster.device.memory = ParseBytes(request.memory, "memory");
    for (NodeKind& kind : cluster.kinds) kind.device.memory = cluster.device.memory;
  }
  if (!request.link.empty()) SetLinks(request.link, cluster);
  SetMeasured(request, cluster);
  if (cluster.memory() == 0) {
    throw ConfigError(Str("a device has ", FormatBytes(cluster.device.memory), ", of which ",
                          FormatBytes(cluster.reserve), " are not for the training"));
  }
  return cluster;
}

}  // namespace strata::search
