// Traces of real runs contain all actions of the program, once and in order, on every rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "engine/forecast/planned_program.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/testing_job.h"
#include "engine/schedule/lowering.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

using schedule::RankTrace;
using schedule::Trace;
using schedule::TracedAction;
using ::testing::ElementsAre;
using testing::FakeScript;
using testing::Function;
using testing::Make;
using testing::MapOf;

Job MakeJob(const Value::Map& keys) {
  Value::Map all = {{"input", MapOf({{"shape", Value::IntList({6})}})},
                    {"data", MapOf({{"train", Function(1)}})},
                    {"trace", "trace.json"},
                    {"steps", 3}};
  all.insert(all.end(), keys.begin(), keys.end());
  const std::vector<LayerSpec> layers = {Make("Linear", {6, 32}), Make("ReLU"),
                                         Make("Linear", {32, 24}), Make("GELU"),
                                         Make("Linear", {24, 5})};
  return testing::MakeJob(layers, Make("CrossEntropyLoss"), all);
}

FakeScript Script() {
  FakeScript script;
  script.data[1] = [](int64_t i) {
    const at::Tensor input = at::arange(8 * 6, at::kFloat).add(i).sin();
    return MicroBatch{{input.view({8, 6})}, {at::arange(8).remainder(5)}};
  };
  return script;
}

/// The texts of a rank's actions that are executed.
std::vector<std::string> RowTexts(const schedule::Program& program, int rank) {
  std::vector<std::string> texts;
  for (const schedule::Action& action : program.rows[rank]) {
    if (action.kind != schedule::Kind::kIdle) texts.push_back(ToText(action));
  }
  return texts;
}

std::vector<std::string> TextsOfStep(const RankTrace& rank, int64_t step) {
  std::vector<std::string> texts;
  for (const TracedAction& traced : rank.actions) {
    if (traced.step == step) texts.push_back(ToText(traced.action));
  }
  return texts;
}

void ExpectRightTimes(const RankTrace& rank) {
  double before = 0;
  for (const TracedAction& traced : rank.actions) {
    EXPECT_GE(traced.start, before - 1e-9);
    EXPECT_GE(traced.end, traced.start);
    EXPECT_GE(traced.waited, 0);
    EXPECT_LE(traced.waited, traced.end - traced.start + 1e-9);
    EXPECT_GT(traced.memory, 0);
    before = traced.end;
  }
  EXPECT_EQ(rank.clock_error, 0);
}

/// An action that needs a message cannot end before the sender's action that makes it has begun.
void ExpectCausality(const Trace& trace) {
  std::map<std::string, double> begins;
  for (const RankTrace& rank : trace.ranks) {
    for (const TracedAction& traced : rank.actions) {
      begins.emplace(Str(traced.step, " ", ToText(traced.action)), traced.start);
    }
  }
  for (const RankTrace& rank : trace.ranks) {
    for (const TracedAction& traced : rank.actions) {
      if (traced.action.kind != schedule::Kind::kForward || traced.action.stage == 0) continue;
      schedule::Action source = traced.action;
      --source.stage;
      EXPECT_GT(traced.end, begins.at(Str(traced.step, " ", ToText(source))))
          << ToText(traced.action);
    }
  }
}

struct TraceCase {
  const char* schedule;
  int pipe, data, stages_per_rank;
};

class TraceTest : public ::testing::TestWithParam<TraceCase> {};

TEST_P(TraceTest, HasEveryActionOfEveryRankOnceInOrder) {
  const auto& [name, pipe, data, per_rank] = GetParam();
  const Job job = MakeJob({{"schedule", name},
                           {"stages_per_rank", per_rank},
                           {"parallel", MapOf({{"pipe", pipe}, {"data", data}})}});
  FakeScript script = Script();
  const Plan plan = PlanJob(job, {}, &script);
  const auto engine = MakeThreadsEngine(job, plan, script);
  for (int64_t step = 0; step < 3; ++step) engine->TrainStep();
  const Trace trace = engine->TakeTrace();
  engine->Close();

  const schedule::Program program = schedule::LowerAndCheck(TrainingProgram(job, plan, 4, &script));
  ASSERT_EQ(trace.ranks.size(), static_cast<size_t>(pipe * data));
  EXPECT_EQ(trace.first_step(), 0);
  EXPECT_EQ(trace.last_step(), 2);
  for (const RankTrace& rank : trace.ranks) {
    const int row = plan.topology.Index(rank.rank, kPipeAxis);
    size_t actions = 0;
    for (int64_t step = 0; step < 3; ++step) {
      EXPECT_EQ(TextsOfStep(rank, step), RowTexts(program, row)) << rank.rank << ", step " << step;
      actions += TextsOfStep(rank, step).size();
    }
    EXPECT_EQ(rank.actions.size(), actions);
    ExpectRightTimes(rank);
  }
  if (data == 1) ExpectCausality(trace);
}

INSTANTIATE_TEST_SUITE_P(Jobs, TraceTest,
                         ::testing::Values(TraceCase{"1f1b", 1, 1, 1}, TraceCase{"gpipe", 3, 1, 1},
                                           TraceCase{"zb_h1", 2, 2, 1},
                                           TraceCase{"interleaved_1f1b", 2, 1, 2}));

TEST(TraceTest, HoldsTrainingOnly) {
  const Job job = MakeJob({});
  FakeScript script = Script();
  const auto engine = testing::Start(job, script);
  engine->TrainStep();
  MicroBatches batch;
  batch.list.push_back(script.data[1](0));
  engine->EvalBatch(batch, nullptr);
  const Trace trace = engine->TakeTrace();
  EXPECT_THAT(TextsOfStep(trace.ranks[0], 0), ElementsAre("0F0", "0B0", "0F1", "0B1", "0F2", "0B2",
                                                          "0F3", "0B3", "0REDUCE_GRAD", "0STEP"));
  EXPECT_EQ(trace.ranks[0].actions.size(), 10u);
  engine->Close();
}

TEST(TraceTest, IsEmptyUnlessAskedFor) {
  Job job = MakeJob({});
  job.trace = "";
  FakeScript script = Script();
  const auto engine = testing::Start(job, script);
  engine->TrainStep();
  EXPECT_TRUE(engine->TakeTrace().empty());
  engine->Close();
}

}  // namespace
}  // namespace strata
