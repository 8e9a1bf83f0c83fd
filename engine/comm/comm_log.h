// CommLog: the times and sizes of one rank's collectives and messages, for --comm_log. Torch-free.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace strata {

/// One line of the log: all calls of one collective in one group with one size.
struct CommRecord {
  std::string collective;  ///< "all_reduce"; "send" and "recv" for messages between two ranks
  std::string group;       ///< "data"; for a message the axis along which it goes: "pipe"
  int ranks = 1;           ///< how many the group has
  int64_t bytes = 0;       ///< in one call: the longer of input and output
  int64_t calls = 0;
  /// The sum over all calls. A collective is timed from the start of its work to the end. A message
  /// is timed by how long the rank was inside the call; most of a recv is waiting.
  double seconds = 0;
  // Only after JoinRecords():
  int slowest = -1;            ///< the rank that spent most time
  double slowest_seconds = 0;  ///< its time

  /// Bytes per second: bytes * calls / seconds.
  double algorithm_bandwidth() const;
  /// Bytes per second that each rank sends and receives, which the hardware limits. As nccl-tests
  /// defines it, the algorithm's bandwidth times 2(n-1)/n for all-reduce, (n-1)/n for all-gather,
  /// reduce-scatter and all-to-all, and 1 for broadcast and messages. Messages travel while the
  /// rank does other work, so their figures show the cost of the calls, not the speed of the wire.
  double bus_bandwidth() const;
};

/// A table for people.
std::string CommText(const std::vector<CommRecord>& records);

/// The records as JSON, for JoinRecords() on another rank.
std::string ToJson(const std::vector<CommRecord>& records);
/// Joins the records of all ranks; texts[r] is rank r's ToJson(). Calls and seconds are sums over
/// the ranks.
std::vector<CommRecord> JoinRecords(const std::vector<std::string>& texts);

/// Collects the records of one rank. Any thread may call it.
class CommLog {
 public:
  /// Hears of each call; on any thread.
  using Listener = std::function<void(const std::string& collective, const std::string& group,
                                      int64_t bytes, double seconds)>;

  /// `counts` = false: nothing but the listener hears of the calls.
  explicit CommLog(bool counts = true, Listener listener = {})
      : counts_(counts), listener_(std::move(listener)) {}

  /// Counts one call.
  void Add(const std::string& collective, const std::string& group, int ranks, int64_t bytes,
           double seconds);
  /// All records, sorted by collective, group and bytes.
  std::vector<CommRecord> Records() const;
  /// Removes all records.
  void Clear();

 private:
  const bool counts_;
  const Listener listener_;
  using Key = std::tuple<std::string, std::string, int64_t>;
  mutable std::mutex mutex_;
  std::map<Key, CommRecord> records_;
};

}  // namespace strata
