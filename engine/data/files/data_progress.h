// DataProgress: a ProgressLine (engine/base/progress_line.h) that is also said while a single call
// works for long, as a tokenizer does with a large file.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

#include "engine/base/progress_line.h"

namespace strata::data {

/// Lines such as "reading rows.csv, 30 %" while the object lives, said by a thread of its own.
class DataProgress {
 public:
  /// `what`: "reading rows.csv". `total`: the amount of work in any unit; 0 leaves out the share.
  DataProgress(std::string what, int64_t total);
  ~DataProgress();
  DataProgress(const DataProgress&) = delete;
  DataProgress& operator=(const DataProgress&) = delete;
  /// The amount of work that is done. May be called often.
  void At(int64_t done) { done_.store(done, std::memory_order_relaxed); }
  int64_t done() const { return done_.load(std::memory_order_relaxed); }

 private:
  void Say();

  ProgressLine line_;
  std::atomic<int64_t> done_ = 0;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;
  std::thread thread_;  // not started if nobody would hear it
};

/// "reading rows.csv", for a DataProgress.
std::string Reading(const std::string& path);

}  // namespace strata::data
