#include "engine/runtime/watch/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <future>
#include <memory>

#include "engine/base/error.h"
#include "engine/comm/transports/thread_transport.h"

namespace strata {
namespace {

using testing::HasSubstr;
using namespace std::chrono_literals;

std::vector<std::shared_ptr<Transport>> Ends() {
  std::vector<std::shared_ptr<Transport>> ends;
  for (auto& end : MakeThreadTransports(2, {})) ends.push_back(std::move(end));
  return ends;
}

const Doing kForward = {1, "1F3"};
const std::string kSource = "data.lua:7";

TEST(ProgressTest, AFailedActionKeepsItsPositionAndIsNotWatched) {
  const Doing forward = {0, "0F1"};
  Progress progress(1);
  progress.Start(&forward);
  progress.WaitFor(0);
  EXPECT_FALSE(progress.resting());
  progress.Fail();
  EXPECT_TRUE(progress.resting());
  EXPECT_EQ(progress.Position(), "rank 1 (stage 0): 0F1, waiting for rank 0");
}

TEST(ProgressTest, WhatIsTheWholeRanksIsAtItsFirstStage) {
  const Doing save = {-1, "SAVE"};
  Progress progress(3);
  progress.set_stage(1);
  progress.Start(&save);
  EXPECT_EQ(progress.Position(), "rank 3 (stage 1): SAVE");
}

TEST(ProgressTest, TellsWhatTheRankDoes) {
  Progress progress(1);
  EXPECT_TRUE(progress.resting());
  EXPECT_EQ(progress.Position(), "rank 1: at rest");
  progress.Start(&kForward);
  EXPECT_FALSE(progress.resting());
  EXPECT_EQ(progress.Position(), "rank 1 (stage 1): 1F3");
  progress.WaitFor(0);
  EXPECT_EQ(progress.Position(), "rank 1 (stage 1): 1F3, waiting for rank 0");
  progress.WaitForAll();
  EXPECT_EQ(progress.Position(), "rank 1 (stage 1): 1F3, waiting for all ranks");
  const Doing reduction = {1, "REDUCE_GRAD"};
  std::atomic<int> awaited = 3;
  progress.WaitFor(&reduction, &awaited);
  EXPECT_EQ(progress.Position(),
            "rank 1 (stage 1): 1F3, waiting for rank 3 in REDUCE_GRAD of stage 1");
  awaited = -1;
  EXPECT_EQ(progress.Position(), "rank 1 (stage 1): 1F3, waiting for REDUCE_GRAD of stage 1");
  // Work that belongs to no stage shows none: the model axis is used in actions of any stage.
  const Doing axis = {-1, "MODEL_AXIS"};
  awaited = 3;
  progress.WaitFor(&axis, &awaited);
  EXPECT_EQ(progress.Position(), "rank 1 (stage 1): 1F3, waiting for rank 3 in MODEL_AXIS");
  const Doing save = {-1, "SAVE"};
  progress.Start(&save);
  EXPECT_EQ(progress.Position(), "rank 1: SAVE");
  progress.Start(&kForward);
  progress.ReadData(&kSource);
  EXPECT_TRUE(progress.reading_data());
  EXPECT_EQ(progress.Position(), "rank 1 (stage 1): 1F3, reading data from data.lua:7");
  progress.Compute();
  EXPECT_EQ(progress.Position(), "rank 1 (stage 1): 1F3");
  progress.Complete();
  EXPECT_EQ(progress.completed(), 1u);
  progress.Rest();
  EXPECT_TRUE(progress.resting());
}

/// Makes as many steps as are needed for the median to be known.
void TakeSteps(Progress& progress) {
  for (int step = 0; step < 3; ++step) {
    progress.BeginStep(step);
    progress.EndStep();
  }
}

/// Two ranks, a clock that the test advances, and the reports of the detector.
class HangDetectorTest : public testing::Test {
 protected:
  void After(std::chrono::seconds time) {
    now_ += time;
    detector_.Check(now_);
  }
  /// Expects a hang after ten more seconds, not after nine.
  void ExpectAHangInTenSeconds() {
    After(9s);
    EXPECT_TRUE(hangs_.empty());
    After(1s);
    EXPECT_EQ(hangs_.size(), 1u);
  }

  std::vector<std::shared_ptr<Transport>> ends_ = Ends();
  std::shared_ptr<Progress> progress_[2] = {std::make_shared<Progress>(0),
                                            std::make_shared<Progress>(1)};
  std::vector<std::string> hangs_, slow_;
  HangDetector detector_{{{progress_[0], ends_[0]}, {progress_[1], ends_[1]}},
                         10,
                         {[this](const std::string& report) { hangs_.push_back(report); },
                          [this](const std::string& report) { slow_.push_back(report); }}};
  HangDetector::Time now_ = HangDetector::Time() + 1h;
};

TEST_F(HangDetectorTest, NamesEveryRankOnce) {
  progress_[0]->Start(&kForward);
  progress_[1]->Start(&kForward);
  progress_[1]->WaitFor(0);
  After(0s);
  After(9s);
  EXPECT_TRUE(hangs_.empty());
  After(1s);
  After(10s);
  ASSERT_EQ(hangs_.size(), 1u);
  EXPECT_EQ(hangs_[0],
            "no action was completed for 10.0 s: rank 0 (stage 1): 1F3; "
            "rank 1 (stage 1): 1F3, waiting for rank 0");
}

TEST_F(HangDetectorTest, AnyCompletedActionIsALife) {
  progress_[0]->Start(&kForward);
  progress_[1]->Start(&kForward);
  After(0s);
  After(9s);
  progress_[1]->Complete();
  After(9s);
  ExpectAHangInTenSeconds();
}

TEST_F(HangDetectorTest, RestIsNoHang) {
  After(0s);
  After(1000s);
  progress_[0]->Start(&kForward);
  After(9s);
  EXPECT_TRUE(hangs_.empty());
  After(10s);
  EXPECT_EQ(hangs_.size(), 1u);
}

TEST_F(HangDetectorTest, SlowDataIsNamedAndForgiven) {
  progress_[0]->Start(&kForward);
  progress_[0]->ReadData(&kSource);
  progress_[1]->Start(&kForward);
  progress_[1]->WaitFor(0);
  After(0s);
  After(11s);
  After(11s);
  EXPECT_TRUE(hangs_.empty());
  ASSERT_EQ(slow_.size(), 1u);
  EXPECT_THAT(slow_[0], HasSubstr("rank 0 (stage 1): 1F3, reading data from data.lua:7"));
  // The rank continues, and later really hangs.
  progress_[0]->Compute();
  progress_[0]->Complete();
  After(1s);
  EXPECT_TRUE(ends_[1]->Statuses().empty());
  After(11s);
  EXPECT_EQ(hangs_.size(), 1u);
}

TEST_F(HangDetectorTest, SlowDataOfAnotherProcessIsForgivenToo) {
  const auto ends = Ends();
  HangDetector other({{progress_[1], ends[1]}}, 10,
                     {[this](const std::string& report) { hangs_.push_back(report); },
                      [this](const std::string& report) { slow_.push_back(report); }});
  progress_[1]->Start(&kForward);
  progress_[1]->WaitFor(0);
  ends[0]->SetStatus("rank 0 reads");
  other.Check(now_);
  other.Check(now_ + 11s);
  EXPECT_TRUE(hangs_.empty());
  EXPECT_EQ(slow_.size(), 1u);
}

TEST_F(HangDetectorTest, WhatIsSlowBetweenTwoStepsIsToldToOthersAndForgiven) {
  const auto ends = Ends();
  HangDetector resting({{progress_[0], ends[0]}}, 10, {});
  HangDetector waiting({{progress_[1], ends[1]}}, 10,
                       {[this](const std::string& report) { hangs_.push_back(report); },
                        [this](const std::string& report) { slow_.push_back(report); }});
  TakeSteps(*progress_[0]);
  progress_[1]->Start(&kForward);
  progress_[1]->WaitFor(0);
  const auto check = [&](std::chrono::seconds time) {
    now_ += time;
    waiting.Check(now_);  // before the other process checks
    resting.Check(now_);
  };
  check(0s);
  check(5s);
  check(5s);
  EXPECT_TRUE(hangs_.empty());
  ASSERT_EQ(slow_.size(), 1u);
  EXPECT_THAT(slow_[0], HasSubstr("rank 0: at rest"));
  progress_[0]->Start(&kForward);
  check(1s);
  EXPECT_TRUE(ends[1]->Statuses().empty());
  check(9s);
  EXPECT_EQ(hangs_.size(), 1u);
}

TEST_F(HangDetectorTest, AThreadThatHasDoneItsPartExcusesNobody) {
  TakeSteps(*progress_[0]);
  progress_[1]->Start(&kForward);
  After(0s);
  After(10s);
  EXPECT_EQ(hangs_.size(), 1u);
}

TEST_F(HangDetectorTest, WhoFailedIsNotSlow) {
  TakeSteps(*progress_[0]);
  progress_[0]->Start(&kForward);
  progress_[0]->Fail();
  progress_[1]->Start(&kForward);
  After(0s);
  After(5s);
  EXPECT_TRUE(ends_[1]->Statuses().empty());
  After(5s);
  EXPECT_EQ(hangs_.size(), 1u);
}

TEST_F(HangDetectorTest, AfterALongSleepOfItsOwnItBeginsAgain) {
  progress_[0]->Start(&kForward);
  After(0s);
  detector_.Forget();
  After(3600s);
  ExpectAHangInTenSeconds();
}

TEST(HangSecondsTest, IsTenSecondsOrFiveMedianStepsInARow) {
  EXPECT_EQ(HangSeconds(0, true, 0.5), 10);
  EXPECT_EQ(HangSeconds(0, true, 7), 35);
  EXPECT_EQ(HangSeconds(0, true, std::nullopt), 120) << "no step is known yet";
  EXPECT_EQ(HangSeconds(0, false, 0.5), 120) << "a save may take long";
  EXPECT_EQ(HangSeconds(3, true, 7), 3);
  EXPECT_EQ(HangSeconds(3, false, std::nullopt), 3);
}

TEST(ProgressTest, TheMedianStepIsThatOfTheLastOnes) {
  Progress progress(0);
  for (int step = 0; step < 2; ++step) {
    progress.BeginStep(step);
    progress.EndStep();
  }
  EXPECT_FALSE(progress.median_step());
  progress.BeginStep(2);
  progress.EndStep();
  ASSERT_TRUE(progress.median_step());
  EXPECT_GE(*progress.median_step(), 0);
}

/// A transport that blocks in every call about statuses until the test releases it, and that
/// reports when it is asked for broken peers.
class DumbTransport : public Transport {
 public:
  explicit DumbTransport(std::shared_future<void> end) : end_(std::move(end)) {}
  int rank() const override { return 0; }
  int world_size() const override { return 1; }
  const char* name() const override { return "dumb"; }
  SendLink& send_link(int, int) override { std::abort(); }
  RecvLink& recv_link(int, int) override { std::abort(); }
  std::vector<double> AllReduceSum(const std::vector<double>& values) override { return values; }
  std::string Broadcast(const std::string& text, int) override { return text; }
  std::vector<std::string> Gather(const std::string& text) override { return {text}; }
  void Barrier() override {}
  void Abort(const std::string&) override {}
  void AbortIfBroken() override {
    if (!was_asked_.exchange(true)) asked.set_value();
  }
  std::vector<std::string> Statuses() override {
    end_.wait();
    throw WorldError("the store is gone");
  }

  std::promise<void> asked;

 private:
  std::shared_future<void> end_;
  std::atomic<bool> was_asked_ = false;
};

TEST_F(HangDetectorTest, WhoKeepsTheWordsMayHangItself) {
  std::promise<void> end;
  const auto dumb = std::make_shared<DumbTransport>(end.get_future().share());
  HangDetector detector({{progress_[0], dumb}}, 10,
                        {[this](const std::string& report) { hangs_.push_back(report); }, {}});
  progress_[0]->Start(&kForward);
  detector.Check(now_);
  detector.Check(now_ + 11s);
  EXPECT_EQ(hangs_.size(), 1u);
  end.set_value();
}

TEST_F(HangDetectorTest, AWatchdogAsksForBrokenPeersOfWhichADeviceTellsNobody) {
  std::promise<void> end;
  const auto dumb = std::make_shared<DumbTransport>(end.get_future().share());
  const Watchdog watchdog({{progress_[0], dumb}}, 0.05);
  dumb->asked.get_future().wait();  // on failure the test's time limit ends it
}

TEST_F(HangDetectorTest, AWatchdogRestsHoweverLongItsTimeoutIs) {
  const auto dumb = std::make_shared<DumbTransport>(std::shared_future<void>());
  const auto asked = dumb->asked.get_future();
  const Watchdog watchdog({{progress_[0], dumb}}, 1e300);  // more than the clock can hold
  EXPECT_EQ(asked.wait_for(20ms), std::future_status::timeout) << "it looks again and again";
}

TEST(WatchdogTest, EndsWhatWaits) {
  const auto ends = Ends();
  const auto progress = std::make_shared<Progress>(0);
  progress->Start(&kForward);
  progress->WaitForAll();
  std::promise<std::string> report;
  const Watchdog watchdog({{progress, ends[0]}}, 0.05,
                          [&](const std::string& text) { report.set_value(text); });
  try {
    ends[0]->Barrier();  // rank 1 never comes
    ADD_FAILURE() << "expected a WorldError";
  } catch (const WorldError& error) {
    EXPECT_EQ(error.what(), report.get_future().get());
    EXPECT_THAT(error.what(), HasSubstr("rank 0 (stage 1): 1F3, waiting for all ranks"));
  }
}

}  // namespace
}  // namespace strata
