#include "engine/job/lr_schedule.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "engine/job/testing_job.h"
#include "engine/layers/testing_script.h"

namespace strata {
namespace {

LrScheduleSpec Schedule(const std::string& type, Value::Map options = {}) {
  options.emplace(options.begin(), "1", type);
  return Build({{"lr_schedule", MapOf(std::move(options))}}).lr_schedule;
}

double At(const LrScheduleSpec& spec, int64_t step, int64_t total = 100) {
  return LrFactor(spec, step, total, nullptr);
}

TEST(LrSchedule, FactorsArePyTorchs) {
  const Value golden = ReadJson("engine/job/testdata/lr_schedules.json");
  for (const Value& entry : golden.as_list()) {
    const Value::List& golden_case = entry.as_list();
    if (golden_case[0] == Value("plateau")) continue;  // monitors_test.cc tests it
    const LrScheduleSpec spec = Schedule(golden_case[0].as_string(), golden_case[1].as_map());
    const int64_t total = golden_case[2].as_int();
    const Value::List& factors = golden_case[3].as_list();
    for (size_t step = 0; step < factors.size(); ++step) {
      EXPECT_NEAR(At(spec, static_cast<int64_t>(step), total), factors[step].as_double(), 1e-9)
          << entry.ToJson() << " at " << step;
    }
  }
}

TEST(LrSchedule, Constant) {
  const LrScheduleSpec spec = Schedule("constant");
  for (int step : {0, 1, 99, 1000}) EXPECT_EQ(At(spec, step), 1);
}

TEST(LrSchedule, WarmupRisesToOneAndStays) {
  const LrScheduleSpec spec = Schedule("warmup", {{"steps", 4}});
  for (int step = 0; step < 4; ++step) EXPECT_DOUBLE_EQ(At(spec, step), (step + 1) / 5.0);
  for (int step : {4, 5, 1000}) EXPECT_EQ(At(spec, step), 1);
}

TEST(LrSchedule, DecaysTakeTheRestOfTheTraining) {
  const LrScheduleSpec spec = Schedule("linear", {{"warmup", 20}});
  EXPECT_EQ(At(spec, 20, 100), 1);
  EXPECT_DOUBLE_EQ(At(spec, 60, 100), 0.5);
  EXPECT_EQ(At(spec, 100, 100), 0);
  EXPECT_EQ(At(spec, 500, 100), 0) << "beyond the end the last factor holds";
}

TEST(LrSchedule, ARiseAsLongAsTheTrainingLeavesNothingToDecay) {
  const LrScheduleSpec spec = Schedule("cosine", {{"warmup", 10}, {"final", 0.25}});
  EXPECT_LT(At(spec, 9, 10), 1);
  EXPECT_EQ(At(spec, 10, 10), 0.25);
}

TEST(LrSchedule, ALengthIsNeeded) {
  for (const char* type : {"linear", "cosine"}) {
    EXPECT_EQ(ErrorOf([&] { At(Schedule(type), 0, 0); }),
              std::string("lr_schedule \"") + type +
                  "\" needs steps, since the length of the training is not known");
    EXPECT_EQ(At(Schedule(type, {{"steps", 10}}), 0, 0), 1);
  }
}

TEST(LrSchedule, ADecayOfASequenceEndsWhereTheNextBegins) {
  const Value rise = MapOf({{"1", "warmup"}, {"steps", 4}}), fall = MapOf({{"1", "linear"}});
  const LrScheduleSpec last = Schedule(
      "sequence", {{"schedules", Value::List{rise, fall}}, {"milestones", Value::List{4}}});
  EXPECT_EQ(At(last, 4, 12), 1);
  EXPECT_DOUBLE_EQ(At(last, 11, 12), 0.125);
  EXPECT_EQ(At(last, 12, 12), 0);
  EXPECT_NE(ErrorOf([&] { At(last, 4, 0); }), "") << "the length of the training is not known";
  const LrScheduleSpec first = Schedule(
      "sequence", {{"schedules", Value::List{fall, "constant"}}, {"milestones", Value::List{10}}});
  EXPECT_DOUBLE_EQ(At(first, 5), 0.5);
  EXPECT_EQ(At(first, 10), 1);
}

TEST(LrSchedule, StepDropsAndStaysPositive) {
  const LrScheduleSpec spec = Schedule("step", {{"every", 30}});
  EXPECT_EQ(At(spec, 0), 1);
  EXPECT_EQ(At(spec, 29), 1);
  EXPECT_DOUBLE_EQ(At(spec, 30), 0.1);
  EXPECT_DOUBLE_EQ(At(spec, 89), 0.01);
}

RC_GTEST_PROP(LrSchedule, FactorsStayBetweenFinalAndOne, ()) {
  const bool linear = *rc::gen::arbitrary<bool>();
  const int warmup = *rc::gen::inRange(0, 50);
  const int total = *rc::gen::inRange(1, 200);
  const double final = *rc::gen::inRange(0, 100) / 100.0;
  const LrScheduleSpec spec =
      Schedule(linear ? "linear" : "cosine", {{"warmup", warmup}, {"final", final}});
  double previous = 0;
  for (int step = 0; step < total + 5; ++step) {
    const double factor = At(spec, step, total);
    RC_ASSERT(factor <= 1 + 1e-12);
    if (step < warmup) {
      RC_ASSERT(factor > previous);
    } else {
      RC_ASSERT(factor >= final - 1e-12);
      if (step > warmup) RC_ASSERT(factor <= previous + 1e-12);
    }
    previous = factor;
  }
}

TEST(LrSchedule, AFunctionIsAskedForEveryStep) {
  const LrScheduleSpec spec = Build({{"lr_schedule", Function("net.lua:5")}}).lr_schedule;
  ASSERT_EQ(spec.type, "function");
  AnsweringScript script(0.5);
  EXPECT_EQ(LrFactor(spec, 7, 100, &script), 0.5);
  EXPECT_EQ(Value(script.asked), Ints({7}));
}

TEST(LrSchedule, AFunctionMustGiveANumber) {
  const LrScheduleSpec spec = Build({{"lr_schedule", Function("net.lua:5")}}).lr_schedule;
  for (const Value& answer : {Value(), Value("fast"), Value(true), Value(std::nan("")),
                              Value(Value::List{0.5}), Value(HUGE_VAL)}) {
    AnsweringScript script(answer);
    EXPECT_EQ(ErrorOf([&] { LrFactor(spec, 7, 100, &script); }),
              "net.lua:5: lr_schedule expects its function to return a finite number; got " +
                  answer.Describe() + " at step 7");
  }
}

}  // namespace
}  // namespace strata
