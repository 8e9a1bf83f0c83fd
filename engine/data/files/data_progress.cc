#include "engine/data/files/data_progress.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "engine/base/text.h"

namespace strata::data {
namespace {

/// How often the thread looks whether a line is due.
constexpr std::chrono::milliseconds kLook(250);

}  // namespace

DataProgress::DataProgress(std::string what, int64_t total) : line_(std::move(what), total) {
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
  while (!ended_.wait_for(lock, kLook, [this] { return has_ended_; })) {
    line_.Advance(done() - line_.done());
  }
}

std::string Reading(const std::string& path) {
  return Str("reading ", std::filesystem::path(path).filename().string());
}

}  // namespace strata::data
