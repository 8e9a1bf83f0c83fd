#include "engine/data/files/data_progress.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <utility>

#include "engine/base/progress_line.h"
#include "engine/base/text.h"

namespace strata::data {
namespace {

constexpr std::chrono::duration<double> kInterval(ProgressLine::kEverySeconds);

}  // namespace

DataProgress::DataProgress(std::string what, int64_t total)
    : what_(std::move(what)), total_(total) {
  if (IsProgressHeard()) thread_ = std::thread([this] { Say(); });
}

DataProgress::~DataProgress() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void DataProgress::Say() {
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, kInterval, [this] { return has_ended_; })) {
    if (total_ <= 0) {
      SayProgress(what_);
      continue;
    }
    const double share = static_cast<double>(done()) / static_cast<double>(total_);
    SayProgress(Str(what_, Printf(", %.0f %%", 100 * std::min(share, 1.0))));
  }
}

std::string Reading(const std::string& path) {
  return Str("reading ", std::filesystem::path(path).filename().string());
}

}  // namespace strata::data
