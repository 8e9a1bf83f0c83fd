// LinkTable: the link rates between each two ranks of a job, and the files that store them. This
// package only stores the rates; engine/runtime/measure_links.h measures them.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/cost/link_rates.h"

namespace strata {

class LinkTable {
 public:
  /// The largest number of ranks; the table has a link for each pair of them.
  static constexpr int kMostRanks = 1024;

  /// `hosts`: the name of each rank's machine. `pairs`: the links of the rank pairs in the order
  /// (0, 1), (0, 2), ..., (1, 2), ... REQUIRES: 2 to kMostRanks ranks, and a link for each pair.
  LinkTable(std::string transport, std::vector<std::string> hosts, std::vector<LinkRates> pairs);

  int ranks() const { return static_cast<int>(hosts_.size()); }
  /// The transport that was measured: "gloo" or "nccl".
  const std::string& transport() const { return transport_; }
  const std::vector<std::string>& hosts() const { return hosts_; }
  /// The link between two different ranks, in either direction.
  const LinkRates& Of(int a, int b) const;
  /// The slowest rates among all pairs of `ranks`. Fewer than two ranks give rates that take no
  /// time.
  LinkRates Slowest(const std::vector<int>& ranks) const;

  bool operator==(const LinkTable&) const = default;

 private:
  std::string transport_;
  std::vector<std::string> hosts_;
  std::vector<LinkRates> pairs_;
};

/// The value for the key `links`: {"links" = 1, "transport", "hosts" = [NAME, ...], "pairs" =
/// [{"ranks" = [a, b], "latency" (seconds), "bandwidth" (bytes per second)}, ...]}.
Value ToValue(const LinkTable& table);
/// Reads a table from such a value. Throws ConfigError, beginning with `where`, for another format,
/// a pair that is missing, is there twice or does not name two ranks, a value that is not a number
/// in range, or an unknown key.
LinkTable ReadLinks(const Value& value, const std::string& where);
/// Reads the file at `path`. Throws ConfigError also if the file cannot be read.
LinkTable ReadLinksFile(const std::string& path);

/// A text table with a line for each pair of ranks, if there are at most 8 ranks; else with a line
/// for each pair of machines, showing the slowest pair of their ranks.
std::string LinksText(const LinkTable& table);

}  // namespace strata
