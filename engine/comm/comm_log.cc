// Sums the calls of one kind, group and size: first on each rank (CommLog), then over all ranks
// (JoinRecords()).
#include "engine/comm/comm_log.h"

#include <string_view>
#include <utility>

#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata {
namespace {

double BusShare(std::string_view collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == "broadcast" || collective == "send" || collective == "recv") return 1;
  return collective == "all_reduce" ? 2 * others : others;
}

}  // namespace

double CommRecord::algorithm_bandwidth() const {
  return seconds > 0 ? static_cast<double>(bytes) * static_cast<double>(calls) / seconds : 0;
}

double CommRecord::bus_bandwidth() const {
  return algorithm_bandwidth() * BusShare(collective, ranks);
}

std::string CommText(const std::vector<CommRecord>& records) {
  TextTable table(
      {"collective", "group", "ranks", "size", "calls", "time", "slowest", "algorithm", "bus"});
  for (const CommRecord& record : records) {
    const auto rate = [](double bytes) { return FormatBytes(bytes) + "/s"; };
    const std::string slowest = record.slowest < 0 ? "-"
                                                   : Str("rank ", record.slowest, ", ",
                                                         FormatSeconds(record.slowest_seconds));
    table.Add({record.collective, record.group, std::to_string(record.ranks),
               FormatBytes(static_cast<double>(record.bytes)), FormatCount(record.calls),
               FormatSeconds(record.seconds), slowest, rate(record.algorithm_bandwidth()),
               rate(record.bus_bandwidth())});
  }
  return table.Render();
}

std::string ToJson(const std::vector<CommRecord>& records) {
  Value::List list;
  for (const CommRecord& record : records) {
    list.push_back(Value::List{record.collective, record.group, record.ranks, record.bytes,
                               record.calls, record.seconds});
  }
  return Value(std::move(list)).ToJson();
}

std::vector<CommRecord> JoinRecords(const std::vector<std::string>& texts) {
  std::map<std::tuple<std::string, std::string, int, int64_t>, CommRecord> joined;
  for (size_t rank = 0; rank < texts.size(); ++rank) {
    const Value list = Value::FromJson(texts[rank]);
    for (const Value& entry : list.as_list()) {
      const Value::List& fields = entry.as_list();
      const int ranks = static_cast<int>(fields[2].as_int());
      CommRecord& record =
          joined[{fields[0].as_string(), fields[1].as_string(), ranks, fields[3].as_int()}];
      record.collective = fields[0].as_string();
      record.group = fields[1].as_string();
      record.ranks = ranks;
      record.bytes = fields[3].as_int();
      record.calls += fields[4].as_int();
      const double seconds = fields[5].as_double();
      record.seconds += seconds;
      if (record.slowest >= 0 && seconds <= record.slowest_seconds) continue;
      record.slowest = static_cast<int>(rank);
      record.slowest_seconds = seconds;
    }
  }
  std::vector<CommRecord> records;
  for (auto& [key, record] : joined) records.push_back(std::move(record));
  return records;
}

void CommLog::Add(const std::string& collective, const std::string& group, int ranks, int64_t bytes,
                  double seconds) {
  if (listener_) listener_(collective, group, bytes, seconds);
  if (!counts_) return;
  const std::lock_guard lock(mutex_);
  CommRecord& record = records_[{collective, group, bytes}];
  record.collective = collective;
  record.group = group;
  record.ranks = ranks;
  record.bytes = bytes;
  record.calls += 1;
  record.seconds += seconds;
}

std::vector<CommRecord> CommLog::Records() const {
  const std::lock_guard lock(mutex_);
  std::vector<CommRecord> records;
  for (const auto& [key, record] : records_) records.push_back(record);
  return records;
}

void CommLog::Clear() {
  const std::lock_guard lock(mutex_);
  records_.clear();
}

}  // namespace strata
