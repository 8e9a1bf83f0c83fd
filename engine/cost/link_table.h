// LinkTable: what messages take between each two ranks of a job, and the files that keep it.
// engine/runtime/measure_links.h measures; here nothing is sent.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/cost/link_rates.h"

namespace strata {

class LinkTable {
 public:
  /// The most ranks of a table, which has a link for each two of them.
  static constexpr int kMostRanks = 1024;

  /// `hosts`: the name of each rank's machine. `pairs`: of ranks (0, 1), (0, 2), ..., (1, 2), ...
  /// REQUIRES: 2 to kMostRanks ranks, and a link for each pair.
  LinkTable(std::string transport, std::vector<std::string> hosts, std::vector<LinkRates> pairs);

  int ranks() const { return static_cast<int>(hosts_.size()); }
  /// Over which they were measured: "gloo" or "nccl".
  const std::string& transport() const { return transport_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// Between two different ranks, in either direction.
  const LinkRates& Of(int a, int b) const;
  /// What the slowest pair of these ranks takes; no time where there are fewer than two.
  LinkRates Slowest(const std::vector<int>& ranks) const;

  bool operator==(const LinkTable&) const = default;

 private:
  std::string transport_;
  std::vector<std::string> hosts_;
  std::vector<LinkRates> pairs_;
};

/// For the key `links`: {"links" = 1, "transport", "hosts" = [NAME, ...], "pairs" = [{"ranks" = [a,
/// b], "latency" (seconds), "bandwidth" (bytes per second)}, ...]}.
Value ToValue(const LinkTable& table);
/// Reads it back. Throws ConfigError, beginning with `where`: another format, a pair that is
/// missing, there twice or not one of two ranks, a number that is none, a name that is not known.
LinkTable ReadLinks(const Value& value, const std::string& where);
/// Of the file at `path`. Throws ConfigError also where it cannot be read.
LinkTable ReadLinksFile(const std::string& path);

/// A line for each pair, of as many ranks as fit on a page; else one for each two machines, by the
/// slowest pair of theirs.
std::string LinksText(const LinkTable& table);

}  // namespace strata
