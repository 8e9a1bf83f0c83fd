#include "engine/spec/steps/monitors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/spec/fields/fields.h"
#include "engine/spec/job/job_fields.h"
#include "engine/spec/testing_job.h"

namespace strata {
namespace {

TEST(Plateau, IsPyTorchs) {
  int compared = 0;
  const Value golden = ReadJson("engine/spec/testdata/lr_schedules.json");
  for (const Value& entry : golden.as_list()) {
    const Value::List& parts = entry.as_list();
    if (parts[0] != Value("plateau")) continue;
    const Value& options = parts[1];
    Plateau plateau(options, options["mode"] == Value("max"));
    for (size_t i = 0; i < parts[3].as_list().size(); ++i) {
      plateau.Take(options["values"].as_list()[i].as_double());
      EXPECT_NEAR(plateau.factor(), parts[3].as_list()[i].as_double(), 1e-12)
          << options.ToJson() << " after evaluation " << i;
      const Value state = Value::FromJson(plateau.state().ToJson());
      plateau.set_state(state);  // a save in between changes nothing
    }
    ++compared;
  }
  EXPECT_EQ(compared, 8);
}

Job Watched(Value::Map more = {}) {
  more.emplace_back("eval", MapOf({{"every", 10}}));
  more.emplace_back("data", MapOf({{"train", Digits()}, {"test", Digits("test")}}));
  return Build(std::move(more));
}

Value Loss(double loss) { return MapOf({{"test.loss", loss}, {"test.accuracy", 1 - loss}}); }

TEST(Monitors, StopsOnceItGetsNoBetter) {
  Monitors monitors(Watched({{"stop", MapOf({{"patience", 2}, {"min_delta", 0.01}})}}));
  int64_t step = 0;
  for (const double loss : {0.5, 0.4, 0.395, std::nan("")}) {
    EXPECT_EQ(monitors.Take(step += 10, Loss(loss)).why_stopped, "") << loss;
  }
  EXPECT_NE(monitors.Take(step += 10, Loss(0.6)).why_stopped, "");
}

TEST(Monitors, MoreOfSomeMetricsIsBetter) {
  Monitors monitors(Watched({{"save", MapOf({{"dir", "runs/a"}, {"best", "test.accuracy"}})}}));
  EXPECT_TRUE(monitors.Take(10, Loss(0.5)).is_best);
  EXPECT_FALSE(monitors.Take(20, Loss(0.6)).is_best);
  EXPECT_TRUE(monitors.Take(30, Loss(0.4)).is_best);
}

TEST(Monitors, GoOnFromASave) {
  const Job job =
      Watched({{"stop", MapOf({{"patience", 1}})},
               {"lr_schedule", MapOf({{"1", "plateau"}, {"patience", 0}, {"factor", 0.5}})}});
  Monitors first(job);
  first.Take(10, Loss(0.5));
  first.Take(20, Loss(0.6));
  EXPECT_EQ(first.lr_factor(), 0.5);
  Monitors second(job);
  EXPECT_TRUE(second.owes(20));
  second.set_state(Value::FromJson(first.state().ToJson()));
  EXPECT_EQ(second.lr_factor(), 0.5);
  EXPECT_FALSE(second.owes(20));
  EXPECT_TRUE(second.owes(30)) << "saved before its evaluation";
  EXPECT_FALSE(second.owes(35));
  EXPECT_NE(second.Take(30, Loss(0.6)).why_stopped, "");
}

TEST(Monitors, TellWhyATrainingHasStopped) {
  const auto watched = [](int patience) {
    return Watched({{"stop", MapOf({{"patience", patience}})}});
  };
  Monitors first(watched(1));
  for (const int step : {10, 20, 30}) {
    EXPECT_EQ(first.WhyStopped(step), "");
    first.Take(step, Loss(step == 10 ? 0.5 : 0.625));
  }
  EXPECT_EQ(first.WhyStopped(30),
            "stopped after step 30: test.loss got no better than 0.5 in 2 evaluations (stop)");
  EXPECT_EQ(first.WhyStopped(35), "") << "its save is another's";
  Monitors again(watched(1)), patient(watched(2)), unwatched(Watched());
  for (Monitors* monitors : {&again, &patient, &unwatched}) monitors->set_state(first.state());
  EXPECT_EQ(again.WhyStopped(30), first.WhyStopped(30));
  EXPECT_EQ(patient.WhyStopped(30), "");
  EXPECT_EQ(unwatched.WhyStopped(30), "");
  Monitors near(Watched({{"stop", MapOf({{"patience", 0}, {"min_delta", 0.25}})}}));
  near.Take(10, Loss(0.5));
  near.Take(20, Loss(0.375));
  EXPECT_EQ(near.WhyStopped(20),
            "stopped after step 20: test.loss got no better than 0.5, by more "
            "than 0.25, in 1 evaluation (stop)");
  Monitors never(watched(0));
  never.Take(10, Loss(std::nan("")));
  EXPECT_EQ(never.WhyStopped(10),
            "stopped after step 10: test.loss got no better in 1 evaluation (stop)");
}

TEST(Monitors, KeepOnlyWhichEvaluationsWereMadeUnlessAsked) {
  Monitors monitors(Watched());
  EXPECT_TRUE(monitors.owes(10));
  EXPECT_EQ(monitors.Take(10, Loss(1)).why_stopped, "");
  EXPECT_FALSE(monitors.owes(10));
  EXPECT_EQ(monitors.state(), MapOf({{"step", 10}}));
  const Monitors at_the_end(
      Build({{"data", MapOf({{"train", Digits()}, {"test", Digits("test")}})}}));
  EXPECT_TRUE(at_the_end.state().is_null());
  EXPECT_FALSE(at_the_end.owes(10));
}

}  // namespace
}  // namespace strata
