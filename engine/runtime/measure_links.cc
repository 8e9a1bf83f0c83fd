// In each round every rank has one partner. The lower rank of the pair leads: it sends an order
// (bytes, count, direction) and both ranks carry it out. The leader measures round trips of small
// messages for the latency, then one larger message to estimate how large and how many messages fit
// into the time, then these for the bandwidth. Lower quartiles of the times exclude disturbances by
// other programs. At the end all ranks gather all results. With n ranks this takes n - 1 (n odd: n)
// rounds.
#include "engine/runtime/measure_links.h"

#include <ATen/ops/full.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/median.h"
#include "engine/base/value.h"
#include "engine/cost/profile.h"

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kChannel = 0;
constexpr int kPings = 40, kFirstPings = 5;                   // the first messages are not counted
constexpr int64_t kSmall = 1 << 10, kFirstLarge = 128 << 10;  // bytes
/// The size of a bucket of gradients that two replicas sum.
constexpr int64_t kLarge = 8 << 20;
constexpr int kLeastLarge = 3, kMostLarge = 40;
constexpr double kUndisturbed = 0.25;  // quantile of the times: close to that of an idle machine

/// What the two ranks of a pair do next.
struct Order {
  int64_t bytes = 0;
  int64_t count = 0;  ///< number of messages; 0 ends the measurement
  /// If not 0, both send at once; otherwise the follower answers the leader.
  int64_t at_once = 0;
};

class Pair {
 public:
  Pair(Transport& transport, int partner, at::Device device)
      : sender_(transport.send_link(partner, kChannel)),
        receiver_(transport.recv_link(partner, kChannel)),
        device_(device) {}

  LinkRates Lead(double seconds) {
    Run({.bytes = kSmall, .count = kFirstPings});
    LinkRates link;
    link.latency = Quantile(Run({.bytes = kSmall, .count = kPings}), kUndisturbed) / 2;
    // Estimates how large and how many messages a slow link can send in the time. The first message
    // is slower than later ones, so the second one counts.
    const double first = Run({.bytes = kFirstLarge, .count = 2, .at_once = 1})[1];
    const double share = seconds / (kLeastLarge + 1) / first;
    const int64_t bytes =
        std::clamp(static_cast<int64_t>(share * kFirstLarge), kFirstLarge, kLarge);
    const double each = std::max(first * static_cast<double>(bytes) / kFirstLarge, 1e-6);
    const auto count =
        static_cast<int64_t>(std::clamp(seconds / each, 1.0 * kLeastLarge, 1.0 * kMostLarge));
    std::vector<double> large = Run({.bytes = bytes, .count = count + 1, .at_once = 1});
    large.erase(large.begin());
    Tell({});
    const double transfer = std::max(Quantile(std::move(large), kUndisturbed) - link.latency, 1e-9);
    link.bandwidth = static_cast<double>(bytes) / transfer;
    return link;
  }

  void Follow() {
    for (Order order = Hear(); order.count > 0; order = Hear()) Do(order);
  }

 private:
  std::vector<double> Run(const Order& order) {
    Tell(order);
    return Do(order);
  }

  /// Returns the seconds of each exchange.
  std::vector<double> Do(const Order& order) {
    const at::Tensor message = at::full({order.bytes}, 1, at::TensorOptions(at::kByte)).to(device_);
    std::vector<double> seconds;
    for (int64_t i = 0; i < order.count; ++i) {
      const auto start = Clock::now();
      if (order.at_once || leads_) Send(message);
      Receive(order.bytes, DType::kUInt8);
      if (!order.at_once && !leads_) Send(message);
      sender_.Flush();
      Wait();
      seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count());
    }
    return seconds;
  }

  void Tell(const Order& order) {
    leads_ = true;
    const at::Tensor told = at::full({3}, order.bytes, at::TensorOptions(at::kLong));
    told.mutable_data_ptr<int64_t>()[1] = order.count;
    told.mutable_data_ptr<int64_t>()[2] = order.at_once;
    Send(told.to(device_));
    sender_.Flush();
  }

  Order Hear() {
    const at::Tensor told = Receive(3, DType::kInt64).cpu();
    const auto* numbers = told.const_data_ptr<int64_t>();
    return {.bytes = numbers[0], .count = numbers[1], .at_once = numbers[2]};
  }

  void Send(const at::Tensor& tensor) { sender_.Send({tensor}); }

  at::Tensor Receive(int64_t elements, DType dtype) {
    receiver_.Post({{{elements}, dtype}});
    return receiver_.Wait()[0];
  }

  void Wait() const {
    if (device_.is_cpu()) return;
    c10::impl::VirtualGuardImpl(device_.type()).synchronizeDevice(device_.index());
  }

  SendLink& sender_;
  RecvLink& receiver_;
  const at::Device device_;
  bool leads_ = false;
};

/// The measurements of this rank as a value, for the other ranks.
Value ToValue(const std::string& host, const std::vector<std::pair<int, LinkRates>>& links) {
  Value::List list;
  for (const auto& [partner, link] : links) {
    list.push_back(ToValue(link).Set("with", partner));
  }
  return Value::MakeMap({{"host", host}, {"links", std::move(list)}});
}

}  // namespace

std::vector<LinkSpec> LinksBetweenAll(int ranks) {
  std::vector<LinkSpec> links;
  for (int from = 0; from < ranks; ++from) {
    for (int to = 0; to < ranks; ++to) {
      if (from != to) links.push_back({from, to, kChannel});
    }
  }
  return links;
}

int PartnerOf(int rank, int round, int ranks) {
  // An odd number leaves one rank out per round.
  const int moving = ranks % 2 == 0 ? ranks - 1 : ranks;
  if (rank == moving) {
    const int half = (moving + 1) / 2;  // the rank whose double is `round`, modulo `moving`
    return round * half % moving;
  }
  const int partner = (round - rank % moving + moving) % moving;
  if (partner != rank) return partner;
  return ranks % 2 == 0 ? moving : rank;
}

LinkTable MeasureLinks(Transport& transport, const std::string& host, at::Device device,
                       double seconds) {
  const int rank = transport.rank(), ranks = transport.world_size();
  const int rounds = ranks % 2 == 0 ? ranks - 1 : ranks;
  std::vector<std::pair<int, LinkRates>> mine;
  for (int round = 0; round < rounds; ++round) {
    transport.Barrier();
    const int partner = PartnerOf(rank, round, ranks);
    if (partner == rank) continue;
    Pair pair(transport, partner, device);
    if (rank < partner) {
      mine.emplace_back(partner, pair.Lead(seconds / rounds));
    } else {
      pair.Follow();
    }
  }
  std::vector<std::string> hosts;
  std::vector<LinkRates> pairs;
  for (const std::string& text : transport.Gather(ToValue(host, mine).ToJson())) {
    const Value told = Value::FromJson(text);
    hosts.push_back(told["host"].as_string());
    Value::List links = told["links"].as_list();
    std::ranges::sort(links, {}, [](const Value& link) { return link["with"].as_int(); });
    for (const Value& link : links) {
      pairs.push_back(LinkRatesOf(link, "a measured link"));
    }
  }
  return {transport.name(), std::move(hosts), std::move(pairs)};
}

}  // namespace strata
