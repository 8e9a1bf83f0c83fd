#include "engine/forecast/outlook.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/fields/quantity.h"
#include "engine/forecast/planned_program.h"
#include "engine/plan/plan_testing.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using testing::HasSubstr;

/// Measured seconds that differ from layer to layer.
Measure Uneven() {
  return [](const MeasureTask& task) {
    Profile profile;
    for (size_t i = 0; i < task.job->layers.size(); ++i) {
      profile.layers.push_back({1.0 + static_cast<double>(i % 3), 1, 1});
    }
    return profile;
  };
}

struct Seen {
  explicit Seen(const Job& j, const PlanOptions& options = {})
      : job(j),
        plan(PlanJob(job, options, nullptr)),
        forecast(ForecastHere(job, plan, nullptr)),
        outlook(LookOut(job, plan, forecast)) {}
  Job job;
  Plan plan;
  StepForecast forecast;
  Outlook outlook;
};

TEST(OutlookTest, NoScheduleHasLessThanTheLeastBubble) {
  for (const char* partition : {"uniform", "time"}) {
    for (const bool again : {false, true}) {
      for (const char* schedule : {"gpipe", "1f1b", "zb_h1", "zb_h2", "auto"}) {
        Job job = DeepJob(4, 8);
        job.partition.method = partition;
        job.schedule.name = schedule;
        if (again) job.recompute.method = RecomputeSpec::Method::kStages;
        const Seen seen(job, {.measure = Uneven()});
        EXPECT_LE(seen.outlook.least_bubble, seen.outlook.simulation.bubble + 1e-12)
            << partition << " " << schedule << " " << again;
        EXPECT_GT(seen.outlook.least_bubble, 0) << partition << " " << schedule << " " << again;
      }
    }
  }
}

TEST(OutlookTest, ALeastBubbleOfNothingIsNotTold) {
  Outlook outlook;
  outlook.schedule = "1f1b";
  outlook.least_bubble = 0.0004;
  EXPECT_EQ(
      BubbleText(outlook),
      "schedule 1f1b, predicted bubble 0.0% (forward, input gradient and weight gradient take "
      "1 each)\n");
  outlook.least_bubble = 0.04;
  EXPECT_THAT(BubbleText(outlook), HasSubstr(" (no schedule has less than 4.0%; forward, input"));
}

TEST(OutlookTest, WithoutALimitThereIsNoMoreMemory) {
  Job job = DeepJob(4, 8);
  job.schedule.name = "auto";
  EXPECT_EQ(MoreMemoryText(Seen(job).outlook), "");
  job.memory = int64_t{1} << 30;
  EXPECT_EQ(MoreMemoryText(Seen(job).outlook), "more memory would not make the step shorter\n");
  job.schedule.name = "1f1b";
  EXPECT_EQ(MoreMemoryText(Seen(job).outlook), "") << "nothing is searched";
}

// If a job gets as much memory as the text asks for, its plan becomes as fast as the text says.
TEST(OutlookTest, MoreMemoryDoesWhatItSays) {
  int more = 0;
  for (const char* partition : {"uniform", "time"}) {
    for (const auto method : {RecomputeSpec::Method::kNone, RecomputeSpec::Method::kStages,
                              RecomputeSpec::Method::kAuto}) {
      Job job = DeepJob(4, 8);
      job.partition.method = partition;
      job.recompute.method = method;
      job.schedule.name = "1f1b";
      const PlanOptions options = {.measure = Uneven()};
      const int64_t enough = Seen(job, options).forecast.peak_memory();
      job.schedule.name = "auto";
      job.partition = {"cuts", {0, 4, 8, 12, 16}, {}};
      PlanOptions measuring = options;
      measuring.wants_seconds = std::string(partition) == "time";
      for (const int percent : {100, 90}) {
        job.memory = enough * percent / 100;
        Seen seen = [&] {
          try {
            return Seen(job, measuring);
          } catch (const ConfigError&) {
            job.memory = enough;  // too little for this job
            return Seen(job, measuring);
          }
        }();
        if (seen.outlook.wanted_memory == 0) continue;
        ++more;
        const std::string text = MoreMemoryText(seen.outlook);
        const size_t begin = text.find("= ") + 2;
        job.memory = static_cast<int64_t>(
            ParseBytes(text.substr(begin, text.find(" the bubble") - begin), "memory"));
        const Seen then(job, measuring);
        // PlanJob() takes the simplest of nearly equal plans, so the step may differ by
        // kLeastSaving.
        const double wanted = (1 - seen.outlook.saving) * seen.outlook.simulation.makespan;
        const double now = then.outlook.simulation.makespan;
        EXPECT_TRUE(wanted * (1 - 1e-9) <= now && now <= wanted / (1 - kLeastSaving)) << text;
        EXPECT_NEAR(then.outlook.simulation.bubble,
                    1 - (1 - seen.outlook.wanted_bubble) * wanted / now, 1e-9)
            << text;
        EXPECT_EQ(then.outlook.wanted_memory, 0) << text;
      }
    }
  }
  EXPECT_GT(more, 3) << "a test that looks at nothing";
}

}  // namespace
}  // namespace strata
