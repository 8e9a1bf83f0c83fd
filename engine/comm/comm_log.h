// CommLog: what the collectives and messages of one rank cost, for --comm_log. Torch-free.
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
  std::string collective;  ///< "all_reduce"; "send" and "recv" for messages between two ranks
  std::string group;       ///< "data"; of a message the axis along which it goes, "pipe"
  int ranks = 1;           ///< of the group
  int64_t bytes = 0;       ///< of one call: the longer of its two tensors
  int64_t calls = 0;
  /// Of all calls: of a collective from the start of the work to its end; of a message what the
  /// rank spent in the call, in a recv mostly with waiting.
  double seconds = 0;
  // Of records of several ranks: who spent most.
  int slowest = -1;
  double slowest_seconds = 0;

  /// Bytes a second: of the tensor, and of what each rank has to send and receive, which the
  /// hardware bounds (nccl-tests' definition: all-reduce 2(n-1)/n, all-gather, reduce-scatter and
  /// all-to-all (n-1)/n, broadcast and messages 1). Messages travel beside the calls: theirs say
  /// what the calls cost, and in a recv how much of that was waiting, not what the wire can do.
  double algorithm_bandwidth() const;
  double bus_bandwidth() const;
};

/// A table for people.
std::string CommText(const std::vector<CommRecord>& records);

/// As text that another rank reads.
std::string ToJson(const std::vector<CommRecord>& records);
/// What the ranks' texts, by rank, say together: calls and seconds are sums over ranks.
std::vector<CommRecord> JoinRecords(const std::vector<std::string>& texts);

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
