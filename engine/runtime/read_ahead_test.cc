// Tests that micro-batches are read before they are needed, with a dataset that counts its reads
// and can hold them up. Nothing depends on timing.
#include "engine/runtime/read_ahead.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <mutex>

namespace strata {
namespace {

using ::testing::ElementsAre;

/// A dataset in which sample i is the number i, and so is its target.
class CountedDataset : public Dataset {
 public:
  int64_t size() const override { return 1'000'000; }
  TensorSpec input() const override { return {{}, DType::kInt64}; }
  TensorSpec target() const override { return input(); }
  int64_t classes() const override { return 0; }
  std::string description() const override { return "numbers"; }

  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return is_open_; });
    for (std::byte* place : {input, target}) {
      if (place) std::memcpy(place, &sample.index, sizeof(sample.index));
    }
    read_.push_back(sample.index);
    changed_.notify_all();
  }

  /// While closed, reads that begin wait until it is opened.
  void set_open(bool is_open) {
    const std::lock_guard lock(mutex_);
    is_open_ = is_open;
    changed_.notify_all();
  }
  /// Waits until `count` samples have been read, and returns their indices.
  std::vector<int64_t> AwaitRead(size_t count) const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return read_.size() >= count; });
    return read_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable std::vector<int64_t> read_;
  bool is_open_ = true;
};

/// Two micro-batches of one sample per run.
std::vector<Order> Orders(int64_t run) { return {{{2 * run}, 0}, {{2 * run + 1}, 0}}; }

int64_t Number(const Tensors& tensors) { return tensors.at(0).item<int64_t>(); }

TEST(ReadAhead, ReadsBeforeAnybodyAsksAndNotFurther) {
  CountedDataset data;
  int64_t last = -1;  // the last run that the reader asked for
  const auto orders = [&last](int64_t run) {
    last = std::max(last, run);
    return Orders(run);
  };
  ReadAhead reader(data, orders, {.workers = 1, .depth = 4});
  reader.Begin(0);
  EXPECT_EQ(last, 1);
  EXPECT_THAT(data.AwaitRead(4), ElementsAre(0, 1, 2, 3)) << "two runs, and nobody has asked";
  for (int64_t run = 0; run < 5; ++run) {
    reader.Begin(run);
    for (int m = 0; m < 2; ++m) {
      const int64_t i = 2 * run + m;
      EXPECT_EQ(Number(reader.Take(m, true)), i);
      EXPECT_EQ(Number(reader.Take(m, false)), i);
      EXPECT_EQ(last, (i + 4) / 2) << "of the farthest micro-batch that is read";
      EXPECT_EQ(data.AwaitRead(static_cast<size_t>(i) + 5).at(static_cast<size_t>(i) + 4), i + 4);
    }
  }
}

/// While a read is held up, everything read before can be taken. If not, this test hangs.
TEST(ReadAhead, WhatIsReadIsTakenWithoutWaiting) {
  CountedDataset data;
  ReadAhead reader(data, Orders, {.workers = 2, .depth = 4});
  reader.Begin(0);
  data.AwaitRead(4);
  data.set_open(false);
  for (int64_t run = 0; run < 2; ++run) {
    reader.Begin(run);
    for (int m = 0; m < 2; ++m) {
      EXPECT_EQ(Number(reader.Take(m, true)), 2 * run + m);
      EXPECT_EQ(Number(reader.Take(m, false)), 2 * run + m);
    }
  }
  EXPECT_EQ(data.AwaitRead(4).size(), 4u);
  data.set_open(true);
  reader.Begin(2);
  EXPECT_EQ(Number(reader.Take(1, true)), 5);
}

TEST(ReadAhead, WithoutWorkersNothingIsReadThatNobodyAskedFor) {
  CountedDataset data;
  ReadAhead reader(data, Orders, {.workers = 0, .depth = 4});
  reader.Begin(0);
  EXPECT_EQ(Number(reader.Take(1, true)), 1);
  EXPECT_THAT(data.AwaitRead(0), ElementsAre(1));
}

}  // namespace
}  // namespace strata
