#include "engine/cost/link_table.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/fields/checked_map.h"
#include "engine/base/fields/fields.h"
#include "engine/base/fields/quantity.h"
#include "engine/base/text.h"
#include "engine/cost/measured_file.h"

namespace strata {
namespace {

constexpr int kVersion = 1;
constexpr int kShownRanks = 8;

/// The index of the pair `a` < `b` in the list of the pairs of `ranks` ranks.
size_t PlaceOf(int a, int b, int ranks) {
  return static_cast<size_t>(a) * (2 * static_cast<size_t>(ranks) - a - 1) / 2 + (b - a - 1);
}

size_t CountPairs(size_t ranks) { return ranks * (ranks - 1) / 2; }

const FieldTable& TableFields() {
  static const FieldTable kFields = {
      Field::Int("links", "the file's format").AtLeast(kVersion).AtMost(kVersion),
      Field::Choice("transport", {"gloo", "nccl"}, "over which they were measured"),
      Field::Any("hosts", "the machine of each rank"), Field::Any("pairs", "a link for each two")};
  return kFields;
}

const FieldTable& PairFields() {
  static const FieldTable kFields = {
      Field::Size("ranks", 2, "the pair").AtLeast(0).AtMost(LinkTable::kMostRanks - 1),
      Field::Number("latency", "seconds").AtLeast(0).AtMost(1e6),
      Field::Number("bandwidth", "bytes per second").Above(0).AtMost(1e18)};
  return kFields;
}

std::vector<std::string> ReadHosts(const Value& list, const std::string& where) {
  const bool is_list = list.is_list() && list.as_list().size() >= 2 &&
                       list.as_list().size() <= LinkTable::kMostRanks;
  if (!is_list) {
    throw ConfigError(Str(where, ": \"hosts\" must be a list of the machines of 2 to ",
                          FormatCount(LinkTable::kMostRanks), " ranks, got ", list.Describe()));
  }
  std::vector<std::string> hosts;
  for (const Value& host : list.as_list()) {
    const bool fits = host.is_string() && std::ranges::all_of(host.as_string(), [](char c) {
                        return static_cast<unsigned char>(c) > 0x20 && c != 0x7F;
                      });
    if (!fits) {
      throw ConfigError(
          Str(where, ": rank ", hosts.size(), " is on no machine with a name: ", host.Describe()));
    }
    hosts.push_back(host.as_string());
  }
  return hosts;
}

std::vector<LinkRates> ReadPairs(const Value& list, int ranks, const std::string& where) {
  if (!list.is_list()) {
    throw ConfigError(Str(where, ": \"pairs\" must be a list, got ", list.Describe()));
  }
  std::vector<std::optional<LinkRates>> found(CountPairs(static_cast<size_t>(ranks)));
  for (size_t i = 0; i < list.as_list().size(); ++i) {
    const std::string subject = Str(where, ": pair ", i);
    const Value pair = CheckedMap(PairFields(), list.as_list()[i], subject, "entry");
    const std::vector<int64_t> ends = pair["ranks"].as_ints();
    const auto [a, b] = std::minmax({static_cast<int>(ends[0]), static_cast<int>(ends[1])});
    if (a == b || b >= ranks) {
      throw ConfigError(Str(subject, ": expected two different ranks of 0 to ", ranks - 1, ", got ",
                            ends[0], " and ", ends[1]));
    }
    auto& link = found[PlaceOf(a, b, ranks)];
    if (link) throw ConfigError(Str(subject, ": ranks ", a, " and ", b, " were there before"));
    link = LinkRates{.latency = pair["latency"].as_double(),
                     .bandwidth = pair["bandwidth"].as_double()};
  }
  std::vector<LinkRates> pairs;
  for (int a = 0; a < ranks; ++a) {
    for (int b = a + 1; b < ranks; ++b) {
      const auto& link = found[pairs.size()];
      if (!link) throw ConfigError(Str(where, ": ranks ", a, " and ", b, " have no link"));
      pairs.push_back(*link);
    }
  }
  return pairs;
}

/// "a (rank 0)" for a single rank on the host, else "a (ranks 0-3)".
std::string RanksText(const std::string& host, const std::vector<int>& ranks) {
  if (ranks.size() == 1) return Str(host, " (rank ", ranks[0], ")");
  const bool is_row = ranks.back() - ranks.front() + 1 == static_cast<int>(ranks.size());
  return Str(host, " (ranks ", is_row ? Str(ranks.front(), "-", ranks.back()) : Join(ranks, ","),
             ")");
}

}  // namespace

LinkTable::LinkTable(std::string transport, std::vector<std::string> hosts,
                     std::vector<LinkRates> pairs)
    : transport_(std::move(transport)), hosts_(std::move(hosts)), pairs_(std::move(pairs)) {
  STRATA_CHECK(hosts_.size() >= 2 && hosts_.size() <= kMostRanks &&
               pairs_.size() == CountPairs(hosts_.size()))
      << hosts_.size() << " ranks, " << pairs_.size() << " pairs";
}

const LinkRates& LinkTable::Of(int a, int b) const {
  STRATA_CHECK(a != b && std::min(a, b) >= 0 && std::max(a, b) < ranks()) << a << " and " << b;
  return pairs_[PlaceOf(std::min(a, b), std::max(a, b), ranks())];
}

LinkRates LinkTable::Slowest(const std::vector<int>& ranks) const {
  LinkRates slowest;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (size_t j = i + 1; j < ranks.size(); ++j) {
      slowest = slowest.SlowerOf(Of(ranks[i], ranks[j]));
    }
  }
  return slowest;
}

Value ToValue(const LinkTable& table) {
  Value::List hosts, pairs;
  for (const std::string& host : table.hosts()) hosts.push_back(host);
  for (int a = 0; a < table.ranks(); ++a) {
    for (int b = a + 1; b < table.ranks(); ++b) {
      const LinkRates& link = table.Of(a, b);
      pairs.push_back(Value::MakeMap({{"ranks", Value::IntList({a, b})},
                                      {"latency", link.latency},
                                      {"bandwidth", link.bandwidth}}));
    }
  }
  return Value::MakeMap({{"links", kVersion},
                         {"transport", table.transport()},
                         {"hosts", std::move(hosts)},
                         {"pairs", std::move(pairs)}});
}

LinkTable ReadLinks(const Value& value, const std::string& where) {
  const Value table = CheckedMap(TableFields(), value, where, "entry");
  std::vector<std::string> hosts = ReadHosts(table["hosts"], where);
  std::vector<LinkRates> pairs = ReadPairs(table["pairs"], static_cast<int>(hosts.size()), where);
  return {table["transport"].as_string(), std::move(hosts), std::move(pairs)};
}

LinkTable ReadLinksFile(const std::string& path) {
  return ReadLinks(ReadMeasuredFile("links", path), Str("links: ", path));
}

std::string LinksText(const LinkTable& table) {
  std::map<std::string, std::vector<int>> machines;
  std::vector<std::string> names;  // in the order of their lowest ranks
  for (int rank = 0; rank < table.ranks(); ++rank) {
    std::vector<int>& ranks = machines[table.hosts()[rank]];
    if (ranks.empty()) names.push_back(table.hosts()[rank]);
    ranks.push_back(rank);
  }
  TextTable text({"from", "to", "latency", "bandwidth"});
  const auto add = [&](const std::string& from, const std::string& to, const LinkRates& link) {
    text.Add({from, to, FormatSeconds(link.latency), FormatBandwidth(link.bandwidth)});
  };
  if (table.ranks() <= kShownRanks) {
    for (int a = 0; a < table.ranks(); ++a) {
      for (int b = a + 1; b < table.ranks(); ++b) {
        add(RanksText(table.hosts()[a], {a}), RanksText(table.hosts()[b], {b}), table.Of(a, b));
      }
    }
    return text.Render();
  }
  for (auto from = names.begin(); from != names.end(); ++from) {
    const std::vector<int>& here = machines[*from];
    if (here.size() > 1) add(RanksText(*from, here), "each other", table.Slowest(here));
    for (auto to = from + 1; to != names.end(); ++to) {
      LinkRates slowest;
      for (const int a : here) {
        for (const int b : machines[*to]) slowest = slowest.SlowerOf(table.Of(a, b));
      }
      add(RanksText(*from, here), RanksText(*to, machines[*to]), slowest);
    }
  }
  return text.Render();
}

}  // namespace strata
