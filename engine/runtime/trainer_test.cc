// Tests of the loop of steps, with an engine that only counts.
#include "engine/runtime/trainer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/testing_job.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// An engine that does no work and records its calls.
class FakeEngine : public TrainEngine {
 public:
  StepResult TrainStep(MicroBatches*) override {
    calls.push_back(Str("step ", steps));
    if (steps == fail_at) throw WorldError("disk full");
    StepResult result;
    result.step = steps++;
    result.loss = 1.0 / static_cast<double>(steps);
    result.samples = 8;
    result.seconds = 0.5;
    result.stop = steps == stop_at;
    result.owes_save = steps == waits_at;
    if (steps - 1 == untaken_at) {
      --steps;
      result.is_taken = false;
      result.nonfinite = NonFinite{"step 3 was not taken: nan", has_finite_weights};
    }
    if (result.is_taken && steps - 1 == noted_at) result.nonfinite = NonFinite{"nan", true};
    if (steps == save_at) result.save = SaveReport{.step = steps, .path = "runs/a"};
    return result;
  }
  EvalResult EvaluateTestData() override {
    calls.push_back("eval");
    EvalResult result = {.loss = 0.25, .samples = 100, .metric = 0.975, .has_metric = true};
    result.is_best = steps == best_at;
    result.stop = steps == leave_at;
    if (steps == worse_at) result.why_stopped = "stopped: worse";
    return result;
  }
  TextReport BeginTexts(const TextRequest& request) override {
    calls.push_back("texts");
    texts_left = static_cast<int64_t>(request.prompts.size());
    return {.note = text_note};
  }
  /// Gives one token, '!', for each text.
  std::vector<NewToken> NextTokens() override {
    if (texts_left == 0) return {};
    return {{--texts_left, '!', true}};
  }
  int64_t steps_per_epoch() const override { return per_epoch; }
  const StartReport& start() const override { return start_report; }
  SaveReport Save() override {
    calls.push_back(Str("save ", steps));
    return {.step = steps, .path = "runs/a"};
  }
  SaveReport FinishSave() override {
    calls.push_back(Str("finish save ", steps));
    return {.step = steps, .path = "runs/a"};
  }
  SaveReport SaveBest() override {
    calls.push_back(Str("save best ", steps));
    return {.step = steps, .path = "runs/a/best", .error = best_error};
  }

  int64_t steps = 0;
  int64_t per_epoch = 0;
  int64_t fail_at = -1;
  int64_t stop_at = -1;
  int64_t save_at = -1;
  int64_t waits_at = -1;    ///< the step whose save the training waits for
  int64_t untaken_at = -1;  ///< the step that is not finite and ends the training
  int64_t noted_at = -1;    ///< the step that is not finite and is applied
  int64_t best_at = -1;     ///< the evaluation that is the best
  int64_t leave_at = -1;    ///< the evaluation that a stop request ends
  int64_t worse_at = -1;    ///< the evaluation after which job.stop ends the training
  std::string best_error;
  int64_t texts_left = 0;
  std::string text_note;
  bool has_finite_weights = true;
  StartReport start_report;
  std::vector<std::string> calls;
};

class Listener : public TrainObserver {
 public:
  void OnStart(int64_t steps, const StartReport& start) override {
    heard.push_back(start.step > 0 ? Str("goes on ", start.step, "/", steps)
                                   : Str("start ", steps));
    for (const std::string& note : start.notes) heard.push_back(note);
    if (start.owes_evaluation) heard.push_back("owes");
  }
  void OnSave(const SaveReport& report) override {
    heard.push_back(Str(report.error.empty() ? "saved " : "not saved ", report.step));
  }
  void OnStep(const StepResult& result) override { heard.push_back(Str("step ", result.step)); }
  void OnNonFinite(const std::string& report) override { heard.push_back(report); }
  void OnEvalStart() override { ++evals_started; }
  void OnEval(int64_t steps_done, const EvalResult& result, bool is_last) override {
    heard.push_back(
        Str(is_last ? "last eval" : "eval", " after ", steps_done, ": ", result.metric));
  }
  void OnSamples(int64_t steps_done, const std::vector<std::string>& texts,
                 const std::string& note) override {
    heard.push_back(Str("after ", steps_done, ": ", Join(texts, " "), " (", note, ")"));
  }
  std::vector<std::string> heard;
  int evals_started = 0;
};

Job JobOf(int64_t steps, double epochs, int64_t eval_every, bool has_test_data) {
  Job job;
  job.steps = steps;
  job.epochs = epochs;
  job.eval.every = eval_every;
  if (has_test_data) job.test_data.kind = "digits";
  return job;
}

std::vector<std::string> HeardOf(const Job& job, int64_t steps_per_epoch = 0) {
  FakeEngine engine;
  engine.per_epoch = steps_per_epoch;
  Listener listener;
  Train(job, {}, engine, listener);
  return listener.heard;
}

/// Records the calls of functions 1, 2 and 3.
class CalledScript : public Script {
 public:
  Value Call(const FunctionRef& function, const Value::List& arguments) override {
    calls.push_back(Str(function.id, " ", arguments.at(0)["step"].as_int()));
    if (calls.size() == fails_at) throw ConfigError("net.lua:7: no");
    last = arguments[0];
    return {};
  }
  TensorSpecs InferShapes(const LayerSpec&, const TensorSpecs&) override { return {}; }
  FirstBatch InferData(const FunctionRef&, int64_t) override { return {}; }
  void TryLoss(const LayerSpec&, const TensorSpecs&, const TensorSpecs&) override {}

  std::vector<std::string> calls;
  size_t fails_at = 0;
  Value last;
};

class TrainTest : public ::testing::Test {
 protected:
  FakeEngine engine;
  Listener listener;
  CalledScript script;
};

using SamplesTest = TrainTest;

TEST_F(TrainTest, RunsTheSteps) {
  EXPECT_THAT(HeardOf(JobOf(3, 0, 0, false)), ElementsAre("start 3", "step 0", "step 1", "step 2"));
}

TEST_F(TrainTest, EvaluatesEachPass) {
  const auto heard = [](int64_t every) { return HeardOf(JobOf(5, 0, every, true), 2); };
  EXPECT_EQ(heard(kEveryEpoch), heard(2));
  EXPECT_NE(heard(kEveryEpoch), heard(0));
}

TEST_F(TrainTest, AnEvaluationIsTheBestOrEndsIt) {
  engine.best_at = 2;
  engine.worse_at = 4;
  Job job = JobOf(9, 0, 2, true);
  job.save.dir = "runs";
  EXPECT_TRUE(Train(job, {}, engine, listener));
  EXPECT_THAT(engine.calls, ElementsAre("step 0", "step 1", "eval", "save best 2", "step 2",
                                        "step 3", "eval", "save 4"));
  EXPECT_EQ(listener.heard.back(), "saved 4");
  EXPECT_EQ(listener.heard[listener.heard.size() - 2], "last eval after 4: 0.975");
}

TEST_F(TrainTest, ABestThatIsNotSavedEndsItWhereNoOtherComes) {
  const auto run = [](int64_t best_at, int64_t worse_at) {
    FakeEngine engine;
    engine.best_at = best_at;
    engine.worse_at = worse_at;
    engine.best_error = "disk full";
    Job job = JobOf(4, 0, 2, true);
    job.save.dir = "runs";
    TrainObserver silent;
    const std::string error = ErrorOf([&] { Train(job, {}, engine, silent); });
    engine.calls.insert(engine.calls.begin(), error);
    return engine.calls;
  };
  const std::string last = "the best save of step 4 failed: disk full";
  EXPECT_EQ(run(2, -1).front(), "no error");
  EXPECT_THAT(run(4, -1), ElementsAre(last, "step 0", "step 1", "eval", "step 2", "step 3",
                                      "save 4", "eval", "save best 4"));
  EXPECT_THAT(run(2, 2), ElementsAre("the best save of step 2 failed: disk full", "step 0",
                                     "step 1", "eval", "save best 2", "save 2"));
  engine.best_at = 2;
  engine.best_error = "disk full";
  Train(JobOf(4, 0, 2, true), {}, engine, listener);
  EXPECT_THAT(listener.heard, Contains("not saved 2"));
}

TEST_F(TrainTest, AnEvaluationThatIsOwedComesFirst) {
  engine.steps = 4;
  engine.start_report = {.step = 4, .owes_evaluation = true};
  engine.worse_at = 4;
  EXPECT_TRUE(Train(JobOf(9, 0, 2, true), {}, engine, listener));
  EXPECT_THAT(engine.calls, ElementsAre("eval"));
}

TEST_F(TrainTest, WhatHasStoppedDoesNotGoOn) {
  engine.steps = 4;
  engine.start_report = {.step = 4, .why_over = "stopped after step 4: worse"};
  EXPECT_TRUE(Train(JobOf(9, 0, 2, true), {}, engine, listener));
  EXPECT_THAT(engine.calls, IsEmpty());
  EXPECT_THAT(
      listener.heard,
      ElementsAre("goes on 4/9", "it has stopped after step 4: worse; more patience goes on"));
}

TEST_F(TrainTest, OwesNoEvaluationWithoutTestData) {
  engine.steps = 2;
  engine.start_report = {.step = 2, .owes_evaluation = true};
  Train(JobOf(3, 0, 2, false), {}, engine, listener);
  EXPECT_THAT(listener.heard, ElementsAre("goes on 2/3", "step 2"));
}

TEST_F(TrainTest, CallbacksGetTheRecords) {
  Job job = JobOf(5, 0, 2, true);
  job.callbacks = {.on_step = {1, "", ""}, .on_eval = {2, "", ""}, .on_epoch = {3, "", ""}};
  engine.per_epoch = 2;
  EXPECT_TRUE(Train(job, {}, engine, listener, &script));
  EXPECT_THAT(script.calls,
              ElementsAre("1 0", "1 1", "2 1", "3 2", "1 2", "1 3", "2 3", "3 4", "1 4", "2 4"));
  EXPECT_EQ(script.last["accuracy"], Value(0.975));
}

TEST_F(TrainTest, AStopAtTheEndOfAPassTellsOfThePass) {
  for (const bool in_evaluation : {false, true}) {
    Job job = JobOf(5, 0, 2, true);
    job.callbacks.on_epoch = {3, "", ""};
    FakeEngine engine;
    engine.per_epoch = 2;
    (in_evaluation ? engine.leave_at : engine.stop_at) = 2;
    TrainObserver silent;
    CalledScript script;
    EXPECT_FALSE(Train(job, {}, engine, silent, &script));
    EXPECT_THAT(script.calls, ElementsAre("3 2"));
  }
}

TEST_F(TrainTest, CallbacksThatAreNotGivenAreNotCalled) {
  Job job = JobOf(2, 0, 0, true);
  job.callbacks.on_eval = {2, "", ""};
  EXPECT_TRUE(Train(job, {}, engine, listener, &script));
  EXPECT_THAT(script.calls, ElementsAre("2 1"));
}

TEST_F(TrainTest, ACallbackThatFailsEndsTheTraining) {
  Job job = JobOf(3, 0, 0, false);
  job.callbacks.on_step = {1, "", ""};
  script.fails_at = 2;
  EXPECT_THROW(Train(job, {}, engine, listener, &script), ConfigError);
  EXPECT_EQ(engine.steps, 2);
}

TEST_F(TrainTest, AStepThatIsNotTakenEndsItWithTheOneBeforeSaved) {
  const auto run = [](bool saves, int64_t untaken_at, bool has_finite_weights) {
    FakeEngine engine;
    engine.untaken_at = untaken_at;
    engine.has_finite_weights = has_finite_weights;
    Job job = JobOf(5, 0, 0, true);
    if (saves) job.save.dir = "runs";
    Listener listener;
    EXPECT_EQ(ErrorOf([&] { Train(job, {}, engine, listener); }), "step 3 was not taken: nan");
    return listener.heard;
  };
  EXPECT_THAT(run(true, 2, true), ElementsAre("start 5", "step 0", "step 1", "saved 2"));
  EXPECT_THAT(run(true, 2, false), ElementsAre("start 5", "step 0", "step 1"));
  EXPECT_THAT(run(true, 0, true), ElementsAre("start 5")) << "nothing is new";
  EXPECT_THAT(run(false, 1, true), ElementsAre("start 5", "step 0"));
}

TEST_F(TrainTest, AStepThatCountsAllTheSameIsNoted) {
  engine.noted_at = 1;
  Train(JobOf(2, 0, 0, false), {}, engine, listener);
  EXPECT_THAT(listener.heard, ElementsAre("start 2", "step 0", "nan", "step 1"));
}

TEST_F(TrainTest, EvaluatesAtTheEnd) {
  EXPECT_THAT(HeardOf(JobOf(1, 0, 0, true)),
              ElementsAre("start 1", "step 0", "last eval after 1: 0.975"));
}

TEST_F(TrainTest, EvaluatesBetweenAndNotTwiceAtTheEnd) {
  EXPECT_THAT(HeardOf(JobOf(4, 0, 2, true)),
              ElementsAre("start 4", "step 0", "step 1", "eval after 2: 0.975", "step 2", "step 3",
                          "last eval after 4: 0.975"));
}

TEST_F(TrainTest, SaysThatAnEvaluationBegins) {
  Train(JobOf(4, 0, 2, true), {}, engine, listener);
  EXPECT_EQ(listener.evals_started, 2);
}

TEST_F(TrainTest, NothingIsEvaluatedWithoutTestData) {
  EXPECT_THAT(HeardOf(JobOf(2, 0, 1, false)), ElementsAre("start 2", "step 0", "step 1"));
}

/// A job of four steps, with test data and with saves.
Job SavedJob() {
  Job job = JobOf(4, 0, 0, true);
  job.save.dir = "runs";
  return job;
}

std::vector<std::string> HeardOf(const Job& job, FakeEngine& engine) {
  Listener listener;
  Train(job, {}, engine, listener);
  return listener.heard;
}

TEST_F(TrainTest, TheLastStepIsSavedBeforeTheEvaluation) {
  EXPECT_THAT(HeardOf(SavedJob(), engine),
              ElementsAre("start 4", "step 0", "step 1", "step 2", "step 3", "saved 4",
                          "last eval after 4: 0.975"));
}

TEST_F(TrainTest, TellsOfSavesInTheBackground) {
  engine.save_at = 2;
  Job job = JobOf(3, 0, 0, false);
  EXPECT_THAT(HeardOf(job, engine),
              ElementsAre("start 3", "step 0", "step 1", "saved 2", "step 2"));
}

/// Records OnStep() among the engine's calls.
class Hearing : public TrainObserver {
 public:
  explicit Hearing(FakeEngine& engine) : engine_(engine) {}
  void OnStep(const StepResult& result) override {
    engine_.calls.push_back(Str("told ", result.step));
  }

 private:
  FakeEngine& engine_;
};

// If the process were killed during the save, the step would be missing in the log.
TEST_F(TrainTest, AStepIsToldBeforeItsSaveIsMade) {
  engine.waits_at = 1;
  Hearing hearing(engine);
  Job job = JobOf(2, 0, 0, false);
  job.save.dir = "runs";
  Train(job, {}, engine, hearing);
  EXPECT_THAT(engine.calls,
              ElementsAre("step 0", "told 0", "finish save 1", "step 1", "told 1", "save 2"));
  FakeEngine last;
  last.waits_at = 2;
  TrainObserver silent;
  Train(job, {}, last, silent);
  EXPECT_THAT(last.calls, ElementsAre("step 0", "step 1", "save 2"));
}

TEST_F(TrainTest, AStopSavesTheStepAndEndsIt) {
  engine.stop_at = 2;
  EXPECT_THAT(HeardOf(SavedJob(), engine), ElementsAre("start 4", "step 0", "step 1", "saved 2"));
}

TEST_F(TrainTest, AStopLeavesAnEvaluationAndSaves) {
  engine.leave_at = 2;
  Job job = SavedJob();
  job.eval.every = 2;
  EXPECT_FALSE(Train(job, {}, engine, listener));
  EXPECT_THAT(engine.calls, ElementsAre("step 0", "step 1", "eval", "save 2"));
  EXPECT_EQ(listener.heard.back(), "saved 2");
}

TEST_F(TrainTest, AStopLeavesTheLastEvaluation) {
  engine.leave_at = 4;
  EXPECT_FALSE(Train(SavedJob(), {}, engine, listener));
  EXPECT_EQ(listener.heard.back(), "saved 4");
}

TEST_F(TrainTest, AStopLeavesAnEvaluationThatIsOwed) {
  engine.steps = engine.leave_at = 2;
  engine.start_report = {.step = 2, .owes_evaluation = true};
  EXPECT_FALSE(Train(SavedJob(), {}, engine, listener));
  EXPECT_THAT(engine.calls, ElementsAre("eval")) << "the save that it began with stands";
}

TEST_F(TrainTest, SaysWhetherItCameToTheEnd) {
  FakeEngine whole, stopped;
  stopped.stop_at = 2;
  EXPECT_TRUE(Train(SavedJob(), {}, whole, listener));
  EXPECT_FALSE(Train(SavedJob(), {}, stopped, listener));
}

TEST_F(TrainTest, GoesOnWhereItStood) {
  engine.start_report.step = engine.steps = 3;
  EXPECT_THAT(HeardOf(SavedJob(), engine),
              ElementsAre("goes on 3/4", "step 3", "saved 4", "last eval after 4: 0.975"));
}

TEST_F(TrainTest, NothingLeftToTrainIsEvaluated) {
  for (const int done : {4, 6}) {
    FakeEngine engine;
    engine.steps = done;
    engine.start_report = {.step = done};
    Listener listener;
    EXPECT_TRUE(Train(JobOf(4, 0, 0, true), {}, engine, listener));
    EXPECT_THAT(engine.calls, ElementsAre("eval"));
    EXPECT_THAT(listener.heard, ElementsAre(Str("goes on ", done, "/4"),
                                            "no step is left: the training has 4 steps", "owes",
                                            Str("last eval after ", done, ": 0.975")));
  }
}

TEST_F(TrainTest, AnErrorEndsIt) {
  engine.fail_at = 1;
  EXPECT_THROW(Train(JobOf(3, 0, 0, true), {}, engine, listener), WorldError);
  EXPECT_THAT(engine.calls, ElementsAre("step 0", "step 1"));
}

/// A job with a language model of bytes, which writes "a!" and "b!".
Job WritingJob(int64_t steps, int64_t eval_every, int64_t every) {
  using testing::Make;
  using testing::MapOf;
  const Value tokens =
      MakeDataSource("tokens", {}, {{"vocabulary", 256}, {"length", 8}}, "net.lua:9");
  Job job = testing::MakeJob({Make("Embedding", {256, 4}), Make("Linear", {4, 256})},
                             Make("CrossEntropyLoss"),
                             {{"data", MapOf({{"train", tokens}, {"test", tokens}})},
                              {"steps", steps},
                              {"eval", MapOf({{"every", eval_every}})}});
  job.eval.samples = {
      {"a", "b"}, every, Canonicalize(TextFields(), CallOf(MapOf({{"tokenizer", "bytes"}})))};
  return job;
}

std::vector<std::string> CallsOf(const Job& job, FakeEngine& engine, TrainObserver& observer) {
  testing::FakeScript script;
  EXPECT_TRUE(Train(job, PlanJob(job, {}, &script), engine, observer));
  return engine.calls;
}

TEST_F(SamplesTest, ComeBehindEvaluations) {
  EXPECT_THAT(CallsOf(WritingJob(3, 2, 0), engine, listener),
              ElementsAre("step 0", "step 1", "eval", "texts", "step 2", "eval", "texts"));
  EXPECT_THAT(listener.heard, Contains("after 2: a! b! ()"));
}

TEST_F(SamplesTest, ComeAfterSoManyStepsAndAtTheEnd) {
  engine.text_note = "layer 3";
  EXPECT_THAT(CallsOf(WritingJob(3, 0, 2), engine, listener),
              ElementsAre("step 0", "step 1", "texts", "step 2", "eval", "texts"));
  EXPECT_EQ(listener.heard.back(), "after 3: a! b! (layer 3)");
}

TEST_F(SamplesTest, ComeAgainWhereATrainingGoesOn) {
  for (const bool owes : {true, false}) {
    FakeEngine engine;
    engine.steps = 2;
    engine.start_report = {.step = 2, .owes_evaluation = owes};
    TrainObserver silent;
    std::vector<std::string> expected = {"texts", "step 2", "eval", "texts"};
    if (owes) expected.insert(expected.begin(), "eval");
    EXPECT_EQ(CallsOf(WritingJob(3, 2, 0), engine, silent), expected);
  }
}

TEST_F(SamplesTest, ComeBehindAnOwedEvaluationThatEndsTheTraining) {
  engine.steps = engine.worse_at = 2;
  engine.start_report = {.step = 2, .owes_evaluation = true};
  Job job = WritingJob(5, 2, 0);
  job.save.dir = "runs";
  EXPECT_THAT(CallsOf(job, engine, listener), ElementsAre("eval", "texts", "save 2"));
}

class Starts : public TrainObserver {
 public:
  void OnStart(int64_t, const StartReport& start) override { owes_samples = start.owes_samples; }
  bool owes_samples = false;
};

TEST_F(SamplesTest, AStartSaysWhetherTheyComeAgain) {
  const auto owes = [](int64_t done, int64_t every, const std::string& why_over = "") {
    FakeEngine engine;
    engine.steps = done;
    engine.start_report = {.step = done, .why_over = why_over};
    Starts starts;
    const std::vector<std::string> calls = CallsOf(WritingJob(6, 2, every), engine, starts);
    const bool come = !calls.empty() && (calls[0] == "texts" || done == 6);
    EXPECT_EQ(starts.owes_samples, come) << done << " of " << every;
    return starts.owes_samples;
  };
  EXPECT_TRUE(owes(2, 0));
  EXPECT_FALSE(owes(3, 0));
  EXPECT_TRUE(owes(3, 3));
  EXPECT_FALSE(owes(2, 3));
  EXPECT_TRUE(owes(6, 4)) << "those of the end";
  EXPECT_FALSE(owes(2, 0, "stopped"));
}

TEST_F(SamplesTest, WhatTheModelCannotWriteIsRefusedFirst) {
  Job job = WritingJob(3, 2, 0);
  job.eval.samples.prompts = {"a text of more than 8 bytes"};
  EXPECT_THAT(ErrorOf([&] { CallsOf(job, engine, listener); }),
              HasSubstr("eval.samples: prompt 1 has 27 bytes; the model reads 8"));
  EXPECT_THAT(engine.calls, IsEmpty());
}

TEST(TotalStepsTest, EpochsAreCountedInSteps) {
  EXPECT_EQ(TotalSteps(JobOf(0, 3, 0, false), 10), 30);
  EXPECT_EQ(TotalSteps(JobOf(0, 0.5, 0, false), 10), 5);
  EXPECT_EQ(TotalSteps(JobOf(0, 0.01, 0, false), 10), 1);
  EXPECT_EQ(TotalSteps(JobOf(0, 0.24, 0, false), 10), 3);
  EXPECT_EQ(TotalSteps(JobOf(7, 3, 0, false), 10), 7);
  EXPECT_EQ(TotalSteps(JobOf(0, 0.07, 0, false), 100), 7) << "0.07 * 100 is above 7";
}

TEST(TotalStepsTest, EpochsNeedDataWithAnEnd) {
  EXPECT_THAT(ConfigErrorOf([] { TotalSteps(JobOf(0, 1, 0, false), 0); }),
              HasSubstr("this data has no end"));
}

}  // namespace
}  // namespace strata
