#include "engine/comm/comm_log.h"

#include <string_view>

#include "engine/base/text.h"

namespace strata {
namespace {

double BusShare(std::string_view collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (collective == "broadcast") return 1;
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
  const auto rate = [](double bytes) { return FormatBytes(bytes) + "/s"; };
  TextTable table({"collective", "group", "ranks", "size", "calls", "time", "algorithm", "bus"});
  for (const CommRecord& record : records) {
    table.Add({record.collective, record.group, std::to_string(record.ranks),
               FormatBytes(static_cast<double>(record.bytes)), FormatCount(record.calls),
               FormatSeconds(record.seconds), rate(record.algorithm_bandwidth()),
               rate(record.bus_bandwidth())});
  }
  return table.Render();
}

void CommLog::Add(const std::string& collective, const std::string& group, int ranks, int64_t bytes,
                  double seconds) {
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
