// CommLog: counts and times one rank's collectives and messages, for --comm_log. Torch-free.
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

/// One line of the log: all calls of one collective (or message) in one group with one size.
struct CommRecord {
  std::string collective;  ///< "all_reduce"; "send" and "recv" for messages between two ranks
  std::string group;       ///< "data"; for a message the axis along which it goes: "pipe"
  int ranks = 1;           ///< the number of ranks in the group
  int64_t bytes = 0;       ///< the size of one call: the longer of its input and output
  int64_t calls = 0;
  /// The sum over all calls. A collective is timed from the start of its work to its end. A message
  /// is timed from the call of Send() or Wait() to its return; most of the time of a "recv" is
  /// waiting.
  double seconds = 0;
  // The fields below are set by JoinRecords() only:
  int slowest = -1;  ///< the rank that spent the most time in these calls; -1 before JoinRecords()
  double slowest_seconds = 0;  ///< the seconds that this rank spent in them

  /// Bytes per second: bytes * calls / seconds.
  double algorithm_bandwidth() const;
  /// Bytes per second that each rank sends and receives, which the hardware limits. As nccl-tests
  /// defines it, the algorithm's bandwidth times 2(n-1)/n for all-reduce, (n-1)/n for all-gather,
  /// reduce-scatter and all-to-all, and 1 for broadcast and messages. Messages travel while the
  /// rank does other work, so their figures show the cost of the calls, not the speed of the wire.
  double bus_bandwidth() const;
};

/// Formats the records as a table for the terminal.
std::string CommText(const std::vector<CommRecord>& records);

/// The records as JSON, for JoinRecords() on another rank.
std::string ToJson(const std::vector<CommRecord>& records);
/// Joins the records of all ranks; texts[r] is rank r's ToJson(). Calls and seconds are sums over
/// the ranks.
std::vector<CommRecord> JoinRecords(const std::vector<std::string>& texts);

/// Collects the records of one rank. Any thread may call it.
class CommLog {
 public:
  /// Called for each call, on the thread that makes it.
  using Listener = std::function<void(const std::string& collective, const std::string& group,
                                      int64_t bytes, double seconds)>;

  /// `counts` = false keeps no records; calls are only passed on to the listener.
  explicit CommLog(bool counts = true, Listener listener = {})
      : counts_(counts), listener_(std::move(listener)) {}

  /// Counts one call that took `seconds`, and passes it on to the listener.
  void Add(const std::string& collective, const std::string& group, int ranks, int64_t bytes,
           double seconds);
  /// All records, sorted by collective, group and bytes.
  std::vector<CommRecord> Records() const;
  void Clear();

 private:
  const bool counts_;
  const Listener listener_;
  using Key = std::tuple<std::string, std::string, int64_t>;
  mutable std::mutex mutex_;
  std::map<Key, CommRecord> records_;
};

}  // namespace strata
