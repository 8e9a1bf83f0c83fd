// CommLog: what the collectives of one rank cost, for --comm_log. Torch-free.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

namespace strata {

/// One line: all calls of one collective in one group with one size.
struct CommRecord {
  std::string collective;  ///< "all_reduce"
  std::string group;       ///< "data"
  int ranks = 1;           ///< of the group
  int64_t bytes = 0;       ///< of one call: the longer of its two tensors
  int64_t calls = 0;
  double seconds = 0;  ///< of all calls, from the start of the work to its end

  /// Bytes a second: of the tensor, and of what each rank has to send and receive, which the
  /// hardware bounds (nccl-tests' definition: all-reduce 2(n-1)/n, all-gather, reduce-scatter and
  /// all-to-all (n-1)/n, broadcast 1).
  double algorithm_bandwidth() const;
  double bus_bandwidth() const;
};

/// A table for people.
std::string CommText(const std::vector<CommRecord>& records);

/// Any thread may add and read.
class CommLog {
 public:
  void Add(const std::string& collective, const std::string& group, int ranks, int64_t bytes,
           double seconds);
  /// In the order of collective, group and bytes.
  std::vector<CommRecord> Records() const;
  /// Forgets everything.
  void Clear();

 private:
  using Key = std::tuple<std::string, std::string, int64_t>;
  mutable std::mutex mutex_;
  std::map<Key, CommRecord> records_;
};

}  // namespace strata
