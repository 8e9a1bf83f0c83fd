#include "engine/job/monitors.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/base/fields/fields.h"
#include "engine/job/job_fields.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

TEST(Plateau, IsPyTorchs) {
  int compared = 0;
  const Value golden = ReadJson("engine/job/testdata/lr_schedules.json");
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
      plateau.set_state(state);  // a save and a resume in between change nothing
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
  Monitors monitors(Watched({{"stop", MapOf({{"patience", 3}, {"min_delta", 0.01}})}}));
  int64_t step = 0;
  for (const double loss : {0.5, 0.4, 0.395, std::nan("")}) {
    EXPECT_EQ(monitors.Take(step += 10, Loss(loss)).why_stopped, "") << loss;
  }
  EXPECT_NE(monitors.Take(step += 10, Loss(0.6)).why_stopped, "");
}

TEST(Monitors, PatienceIsTheNumberOfBadEvaluationsAsOfEarlyStopping) {
  for (const int patience : {0, 1, 2, 5}) {
    Monitors monitors(Watched({{"stop", MapOf({{"patience", patience}})}}));
    EXPECT_EQ(monitors.Take(10, Loss(0.5)).why_stopped, "");
    int bad = 1;
    while (monitors.Take(10 + 10 * bad, Loss(0.6)).why_stopped.empty() && bad < 10) ++bad;
    EXPECT_EQ(bad, patience == 0 ? 1 : patience);
  }
}

TEST(Monitors, MoreOfSomeMetricsIsBetter) {
  Monitors monitors(Watched({{"save", MapOf({{"dir", "runs/a"}, {"best", "test.accuracy"}})}}));
  EXPECT_TRUE(monitors.Take(10, Loss(0.5)).is_best);
  EXPECT_FALSE(monitors.Take(20, Loss(0.6)).is_best);
  EXPECT_TRUE(monitors.Take(30, Loss(0.4)).is_best);
}

TEST(Monitors, GoOnFromASave) {
  const Job job =
      Watched({{"stop", MapOf({{"patience", 2}})},
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
  Monitors first(watched(2));
  for (const int step : {10, 20, 30}) {
    EXPECT_EQ(first.WhyStopped(step), "");
    first.Take(step, Loss(step == 10 ? 0.5 : 0.625));
  }
  EXPECT_EQ(first.WhyStopped(30),
            "stopped after step 30: test.loss got no better than 0.5 in 2 evaluations (stop)");
  EXPECT_EQ(first.WhyStopped(35), "") << "its save is another's";
  Monitors again(watched(2)), patient(watched(3)), unwatched(Watched());
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

Job Keeping(const char* monitor) {
  return Watched({{"save", MapOf({{"dir", "runs/a"}, {"best", monitor}})}});
}

TEST(Monitors, ABestThatWasNotSavedIsNone) {
  Monitors monitors(Keeping("test.loss"));
  EXPECT_TRUE(monitors.Take(10, Loss(0.5)).is_best);
  EXPECT_TRUE(monitors.Take(20, Loss(0.25)).is_best);
  monitors.BestFailed();
  EXPECT_TRUE(monitors.Take(30, Loss(0.375)).is_best) << "the save is that of 0.5";
  EXPECT_FALSE(monitors.Take(40, Loss(0.4375)).is_best);
}

TEST(Monitors, KnowOfABestThatWasSavedBehindTheSaveTheyGoOnFrom) {
  const Job job = Keeping("test.loss");
  Monitors first(job);
  first.Take(10, Loss(0.5));
  const Value saved = first.state();
  EXPECT_TRUE(first.Take(20, Loss(0.25)).is_best);
  const auto is_best = [&](int64_t step, double loss) {
    Monitors second(job);
    second.set_state(saved);
    second.FindBest(20, first.state());
    return second.Take(step, Loss(loss)).is_best;
  };
  EXPECT_FALSE(is_best(30, 0.375));
  EXPECT_TRUE(is_best(30, 0.125));
  EXPECT_TRUE(is_best(20, 0.25)) << "the log has it again";
  Monitors worse(job);
  worse.set_state(first.state());
  worse.FindBest(15, saved);
  EXPECT_FALSE(worse.Take(30, Loss(0.375)).is_best) << "0.25 was better than what is found";
  Monitors other(Keeping("test.accuracy"));
  other.FindBest(20, first.state());
  EXPECT_TRUE(other.Take(30, Loss(0.875)).is_best) << "another number";
}

TEST(Monitors, ANumberDoesNotGoOnWithThatOfAnother) {
  const auto watched = [](const char* monitor, Value::Map more = {}) {
    Value::Map stop = {{"monitor", monitor}, {"patience", 0}};
    stop.insert(stop.end(), more.begin(), more.end());
    return Watched(
        {{"stop", MapOf(std::move(stop))},
         {"save", MapOf({{"dir", "runs/a"}, {"best", monitor}})},
         {"lr_schedule",
          MapOf({{"1", "plateau"}, {"monitor", monitor}, {"patience", 0}, {"factor", 0.5}})}});
  };
  Monitors first(watched("test.loss"));
  first.Take(10, Loss(0.125));
  first.Take(20, Loss(0.25));
  EXPECT_EQ(first.lr_factor(), 0.5);
  Monitors same(watched("test.loss")), other(watched("test.accuracy"));
  EXPECT_TRUE(same.set_state(first.state()).empty());
  EXPECT_FALSE(same.Take(30, Loss(0.1875)).is_best);
  const std::vector<std::string> notes = other.set_state(first.state());
  ASSERT_EQ(notes.size(), 3u);
  EXPECT_EQ(notes[0],
            "stop looks at test.accuracy, more is better, when it was saved at test.loss, less is "
            "better: what it has seen does not count");
  EXPECT_EQ(other.lr_factor(), 0.5) << "that was taken off";
  const Monitors::Verdict verdict = other.Take(30, Loss(0.9375));
  EXPECT_TRUE(verdict.is_best) << "though 0.0625 is less than 0.125";
  EXPECT_EQ(verdict.why_stopped, "");
  Monitors turned(watched("test.loss", {{"mode", "max"}}));
  EXPECT_EQ(turned.set_state(first.state()).size(), 1u);
}

TEST(Monitors, StatesOfOlderSavesDoNotNameTheirNumber) {
  const Value older = Value::FromJson(
      "{\"stop\":{\"worse\":1,\"best\":0.5},\"best\":{\"worse\":0,\"best\":0.5},\"step\":20}");
  Monitors monitors(Watched({{"stop", MapOf({{"patience", 2}})},
                             {"save", MapOf({{"dir", "runs/a"}, {"best", "test.loss"}})}}));
  EXPECT_TRUE(monitors.set_state(older).empty());
  const Monitors::Verdict verdict = monitors.Take(30, Loss(0.625));
  EXPECT_FALSE(verdict.is_best);
  EXPECT_NE(verdict.why_stopped, "");
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
