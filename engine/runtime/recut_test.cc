// Layers move between ranks while a job trains. The bits must be those of a training in which
// nothing moves.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>
#include <set>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"
#include "engine/comm/testing.h"
#include "engine/comm/transports/gloo.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/runtime/saves/move_state.h"
#include "engine/runtime/testing_job.h"
#include "engine/runtime/time_rank.h"
#include "engine/search/plan_job.h"

namespace strata {
namespace {

const WithGradientBlocks kSmallBlocks(256);

using ::testing::ElementsAre;
using testing::FakeScript;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;
using testing::Start;

constexpr int kLayers = 10;

/// Layers with statistics, dropout, two uses of one weight, and sizes that need padding.
std::vector<LayerSpec> Layers() {
  std::vector<LayerSpec> layers = {Make("Conv2d", {1, 33, Value::IntList({2, 3})}),
                                   Make("BatchNorm2d", {33}),
                                   Make("Flatten"),
                                   Make("Linear", {33, 8}),
                                   Make("Linear", {8, 8}),
                                   Make("Dropout", {0.3}),
                                   Make("GELU"),
                                   Make("Linear", {8, 8}),
                                   Make("LayerNorm", {8}),
                                   Make("Linear", {8, 5})};
  layers[4].tied_key = layers[7].tied_key = "shared";
  return layers;
}

FakeScript Script() { return testing::ScriptOf(testing::ImageRows); }

Job MakeJob(int pipe, int data, const Value::Map& more) {
  const Value::Map keys = {{"input", MapOf({{"shape", Value::IntList({1, 2, 3})}})},
                           {"parallel", MapOf({{"pipe", pipe}, {"data", data}})},
                           {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 8}})},
                           {"data", MapOf({{"train", testing::Function(1)}})},
                           {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
                           {"lr_schedule", MapOf({{"1", "cosine"}, {"warmup", 2}})},
                           {"clip", 0.5},
                           {"tie_check", 1},
                           {"steps", 8}};
  return testing::MakeJob(Layers(), Make("CrossEntropyLoss"), testing::With(keys, more));
}

/// The results that must not depend on where layers are.
struct Bits {
  std::vector<std::string> numbers;  ///< as texts, because those of a skipped step may be NaN
  std::vector<std::string> parameters;
  bool operator==(const Bits&) const = default;
};

/// Makes two steps and an evaluation, and adds their results to `bits`.
void Train(Engine& engine, Bits& bits) {
  for (int i = 0; i < 2; ++i) {
    const StepResult result = engine.TrainStep();
    for (const double number : {result.loss, result.grad_norm, result.lr}) {
      bits.numbers.push_back(FormatDouble(number));
    }
  }
  MicroBatches batches;
  for (int64_t i = 0; i < 4; ++i) batches.list.push_back(testing::ImageRows(50 + i));
  bits.numbers.push_back(FormatDouble(engine.EvalBatch(batches, nullptr).loss));
  for (const TensorDigest& digest : engine.Parameters()) {
    bits.parameters.push_back(digest.path + digest.digest);
  }
}

constexpr int kRounds = 4;

Bits TrainUnmoved(const Job& job) {
  FakeScript script = Script();
  const auto engine = Start(job, script);
  Bits bits;
  for (int round = 0; round < kRounds; ++round) Train(*engine, bits);
  engine->Close();
  return bits;
}

std::vector<int> RandomCuts(int stages, std::mt19937& random) {
  std::vector<int> cuts;
  for (int i = 1; i < kLayers; ++i) cuts.push_back(i);
  std::shuffle(cuts.begin(), cuts.end(), random);
  cuts.resize(stages - 1);
  cuts.insert(cuts.end(), {0, kLayers});
  std::ranges::sort(cuts);
  return cuts;
}

Bits TrainMoving(Engine& engine, int stages, unsigned seed) {
  std::mt19937 random(seed);
  Bits bits;
  for (int round = 0; round < kRounds; ++round) {
    if (round > 0) engine.Recut(RandomCuts(stages, random));
    Train(engine, bits);
  }
  return bits;
}

struct Kind {
  const char* name;
  int pipe = 2, data = 1, stages = 2;
  Value::Map more = {};
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

const std::vector<Kind>& Kinds() {
  static const Value others = MapOf({{"1", "adamw"}, {"dims", "!=2"}, {"lr", 0.01}});
  const auto optimizer = [](const char* name, Value::Map more = {}) {
    more.insert(more.end(), {{"1", name}, {"lr", 0.01}});
    return std::pair("optimizer", MapOf(std::move(more)));
  };
  static const std::vector<Kind> kinds = {
      {"adamw"},
      {"three_ranks", 3, 1, 3},
      {"ema", 2, 1, 2, {{"ema", 0.9}}},
      {"replicas", 2, 2, 2},
      {"zero1", 2, 2, 2, {{"zero", 1}, {"ema", 0.9}}},
      {"zero1_three_replicas", 2, 3, 2, {{"zero", 1}}},
      {"zero2", 2, 2, 2, {{"zero", 2}, {"ema", 0.9}}},
      {"zero2_two_stages_a_rank",
       2,
       2,
       4,
       {{"zero", 2}, {"schedule", "zbv"}, {"stages_per_rank", 2}}},
      {"muon", 3, 1, 3, {optimizer("muon", {{"groups", Value::List{others}}})}},
      {"adafactor", 2, 1, 2, {optimizer("adafactor")}},
      {"bf16", 2, 1, 2, {{"precision", "bf16"}}},
      {"fp16", 2, 1, 2, {{"precision", "fp16"}}},
      {"split_backwards", 3, 1, 3, {{"schedule", "zb_h1"}}},
      {"two_stages_a_rank", 2, 1, 4, {{"schedule", "zbv"}, {"stages_per_rank", 2}}},
      {"recomputing", 3, 1, 3, {{"recompute", MapOf({{"every", 2}})}}},
  };
  return kinds;
}

class RecutTest : public ::testing::TestWithParam<Kind> {};

TEST_P(RecutTest, ChangesNoBit) {
  const Kind& kind = GetParam();
  const Job job = MakeJob(kind.pipe, kind.data, kind.more);
  const Bits expected = TrainUnmoved(job);
  for (const unsigned seed : {1, 2, 3}) {
    FakeScript script = Script();
    const auto engine = Start(job, script);
    EXPECT_EQ(TrainMoving(*engine, kind.stages, seed), expected) << "seed " << seed;
    engine->Close();
  }
}

INSTANTIATE_TEST_SUITE_P(All, RecutTest, ::testing::ValuesIn(Kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Recut, ChangesNoBitBetweenProcesses) {
  testing::ExpectAllWell(testing::RunProcesses(4, [](const RankPlace& place) {
    const Job job = MakeJob(2, 2, {{"zero", 2}, {"ema", 0.9}});
    FakeScript script = Script();
    const Plan plan = PlanJob(job, {}, &script);
    const auto engine = MakeRankEngine(
        job, plan, script, MakeGlooTransport(place, LinksOf(plan), GroupsOf(plan), 60), place);
    testing::Require(TrainMoving(*engine, 2, 7) == TrainUnmoved(job), "the bits of threads");
    engine->Close();
  }));
}

// ---- Ranks of unequal speed (job.ranks)

constexpr const char* kMeasured = "speed=measured";

Job UnequalJob(int data, const char* ranks, const Value::Map& more = {}) {
  Value::Map keys = {{"partition", "auto"}};
  if (*ranks != '\0') keys.emplace_back("ranks", ranks);
  return MakeJob(2, data, testing::With(keys, more));
}

TEST(UnequalRanks, ChangeNoBit) {
  const WithRankRates rates({1, 4, 4, 4});
  std::set<std::vector<int>> cuts;
  for (const int data : {1, 2}) {
    const Bits expected = TrainUnmoved(MakeJob(2, data, {}));
    for (const char* ranks : {"0 speed=0.25", "1 speed=0.25", kMeasured}) {
      const Job job = UnequalJob(data, ranks);
      FakeScript script = Script();
      const auto engine = Start(job, script);
      const std::string told = Join(engine->start().notes, "; ");
      EXPECT_EQ(ranks == kMeasured,
                told.find("ranks were timed: speed 0.25 on rank 0, 1 on rank") != std::string::npos)
          << told;
      EXPECT_EQ(TrainUnmoved(job), expected) << ranks << ", data " << data;
      cuts.insert(PlanJob(job, {}, &script).bounds);
      engine->Close();
    }
  }
  EXPECT_GE(cuts.size(), 2U) << "speeds matter";
}

TEST(UnequalRanks, MeasuredSpeedsMoveLayersBeforeTheFirstStep) {
  const auto cuts_of = [](std::vector<double> rates) {
    const WithRankRates given(std::move(rates));
    FakeScript script = Script();
    const auto engine = Start(UnequalJob(1, kMeasured), script);
    const std::string told = engine->start().notes.at(0);
    engine->Close();
    return told.substr(told.find("cuts"));
  };
  EXPECT_NE(cuts_of({1, 8}), cuts_of({8, 1}));
  EXPECT_EQ(cuts_of({1, 0.95}), cuts_of({1, 1})) << "equal ranks differ by as much";
  FakeScript script = Script();
  EXPECT_THAT(ErrorOf([&] {
                Start(UnequalJob(1, kMeasured, {{"partition", "uniform"}}), script);
              }),
              HasSubstr("moves layers before the first step, but partition says where"));
}

/// A training that is saved with some speeds and goes on with others has the bits of one that was
/// not interrupted.
TEST(UnequalRanks, ResumeWithOtherSpeeds) {
  const WithRankRates rates({8, 1});
  const Bits expected = TrainUnmoved(MakeJob(2, 1, {}));
  for (const char* then : {"", "1 speed=0.125", kMeasured}) {
    const TestFolder folder;
    const Value save = MapOf({{"dir", folder.path()}});
    Bits bits;
    for (const bool resumes : {false, true}) {
      Value::Map keys = {{"save", save}};
      if (resumes) keys.emplace_back("resume", "latest");
      FakeScript script = Script();
      const auto engine = Start(UnequalJob(1, resumes ? then : "0 speed=0.125", keys), script);
      for (int round = 0; round < kRounds / 2; ++round) Train(*engine, bits);
      engine->Save();
      engine->Close();
    }
    EXPECT_EQ(bits, expected) << then;
  }
}

TEST(TimeRank, GivesARate) { EXPECT_GT(TimeRank(at::kCPU, 0), 0); }

TEST(Recut, SaysWhatMoved) {
  FakeScript script = Script();
  const auto engine = Start(MakeJob(2, 1, {{"partition", Value::IntList({0, 4, 10})}}), script);
  engine->TrainStep();
  const RecutReport report = engine->Recut({0, 2, 10});
  EXPECT_EQ(report.step, 1);
  EXPECT_THAT(report.cuts, ElementsAre(0, 2, 10));
  EXPECT_EQ(report.moves, "layers 2..3 from rank 0 to rank 1");
  EXPECT_EQ(report.bytes, 3 * 4 * (33 * 8 + 8));  // values and two moments
  EXPECT_EQ(engine->Recut({0, 2, 10}).moves, "");
  EXPECT_EQ(engine->Recut({0, 3, 10}).moves, "layer 2 from rank 1 to rank 0");
  engine->Close();
}

/// The uses of the weight were on one rank at first, so no group was opened for it.
TEST(Recut, TiesThatComeApartAreSummedAllTheSame) {
  const Job job = MakeJob(3, 1, {{"partition", Value::IntList({0, 1, 2, 10})}});
  FakeScript script = Script();
  const auto engine = Start(job, script);
  Bits bits;
  Train(*engine, bits);
  for (const std::vector<int>& cuts : {std::vector{0, 5, 6, 10}, {0, 5, 8, 10}, {0, 8, 9, 10}}) {
    engine->Recut(cuts);
    Train(*engine, bits);
  }
  engine->Close();
  EXPECT_EQ(bits, TrainUnmoved(job));
}

/// Makes a plan from wrong costs: the first rank gets one small layer. The measured times then
/// clearly call for a move, however loaded the machine is.
Plan BadlyPlanned(const Job& job, FakeScript& script) {
  ::unsetenv("STRATA_RATES");
  const Measure measure = [](const MeasureTask&) {
    Profile profile;
    profile.layers.assign(kLayers, {0.03, 0.03, 0.03});
    profile.layers[0] = {1, 1, 1};
    return profile;
  };
  return PlanJob(job, {.measure = measure}, &script);
}

/// When times are measured, the Totals of each step hold those of all stages.
TEST(Recut, RanksMayHaveDifferentNumbersOfStages) {
  FakeScript script = Script();
  script.functions[2] = [](const Value::List&) -> Value {
    return "0F0,0F1,0F2,0F3,2F0,2B0,2F1,2B1,2F2,2B2,2F3,2B3,0B0,0B1,0B2,0B3\n"
           "1F0,1F1,1F2,1F3,1B0,1B1,1B2,1B3\n";
  };
  const Job job = MakeJob(2, 1, {{"partition", "time"}, {"schedule", testing::Function(2)}});
  const Plan plan = BadlyPlanned(job, script);
  ASSERT_THAT(plan.stage_ranks(), ElementsAre(0, 1, 0));
  const auto engine = MakeThreadsEngine(job, plan, script);
  Bits bits;
  for (int round = 0; round < kRounds; ++round) Train(*engine, bits);
  engine->Close();
  EXPECT_EQ(bits, TrainUnmoved(MakeJob(2, 1, {})));
}

TEST(Recut, HappensByItselfWhereStepsGetShorter) {
  // The number of steps before a move is unknown, because the search may use only a share of the
  // time.
  int steps = 10'000;
  const auto train = [&steps](bool rebalance, std::vector<RecutReport>& reports) {
    const Job job = MakeJob(
        2, 2, {{"partition", "auto"}, {"rebalance", rebalance}, {"zero", 1}, {"steps", 1'000'000}});
    FakeScript script = Script();
    const Plan plan = BadlyPlanned(job, script);
    EXPECT_THAT(plan.bounds, ElementsAre(0, 1, kLayers));
    const auto engine = MakeThreadsEngine(job, plan, script);
    Bits bits;
    for (int step = 0; step < steps; ++step) {
      const StepResult result = engine->TrainStep();
      bits.numbers.push_back(FormatDouble(result.loss));
      if (!result.recut) continue;
      if (reports.empty()) steps = step + 10;
      reports.push_back(*result.recut);
    }
    Train(*engine, bits);
    engine->Close();
    return bits;
  };
  std::vector<RecutReport> moved, unmoved;
  const Bits with = train(true, moved);
  EXPECT_EQ(with, train(false, unmoved));
  EXPECT_THAT(unmoved, ElementsAre());
  ASSERT_FALSE(moved.empty());
  EXPECT_GT(moved[0].saving, 0.05);
  EXPECT_GT(moved[0].step, 23);
  EXPECT_THAT(moved[0].moves, HasSubstr("from pipe rank 1 to pipe rank 0"));
  EXPECT_THAT(moved[0].why, HasSubstr("pipe rank "));
}

/// The number of steps after which a training reported the times of its layers; 0 if it never did.
int64_t TellsBehind(int steps) {
  FakeScript script = Script();
  const Job job = MakeJob(2, 1, {{"partition", "auto"}, {"steps", steps}});
  const auto engine = MakeThreadsEngine(job, BadlyPlanned(job, script), script);
  int64_t told = 0;
  for (int step = 0; step < steps; ++step) {
    if (engine->TrainStep().measured) told = step + 1;
  }
  engine->Close();
  return told;
}

TEST(Recut, ShortTrainingsTellWhatTheirLayersTake) {
  EXPECT_EQ(TellsBehind(5), 0) << "the first steps are slower";
  int64_t told = 0;
  // Long trainings that reported. They do not while other programs use the processor.
  int long_ones = 0;
  for (int attempt = 0; attempt < 200 && told == 0 && long_ones < 10; ++attempt) {
    told = TellsBehind(6);
    long_ones += TellsBehind(13) == 13 ? 1 : 0;
  }
  if (told == 0 && long_ones < 10) GTEST_SKIP() << "other programs had the processor all the time";
  EXPECT_EQ(told, 6);
}

TEST(Recut, ThatWasAskedForIsTheLast) {
  const Job job = MakeJob(2, 2, {{"partition", "auto"}, {"steps", 1'000'000}});
  FakeScript script = Script();
  const auto engine = MakeThreadsEngine(job, BadlyPlanned(job, script), script);
  engine->TrainStep();
  engine->Recut({0, 2, kLayers});
  for (int step = 0; step < 40; ++step) EXPECT_FALSE(engine->TrainStep().recut) << step;
  engine->Close();
}

TEST(Recut, RefusesCutsThatCannotBe) {
  FakeScript script = Script();
  const auto engine = Start(MakeJob(2, 1, {}), script);
  EXPECT_THAT(ErrorOf([&] {
                engine->Recut({0, 2, 4, 10});
              }),
              HasSubstr("expected the bounds of 2 stages"));
}

TEST(Recut, ASaveThatIsWrittenIsThatOfItsStep) {
  TestFolder folder;
  const Value save = MapOf({{"dir", folder.Inside("runs")}, {"every", 2}});
  const Job job = MakeJob(2, 1, {{"save", save}});
  FakeScript script = Script();
  Bits expected, bits;
  {
    const auto engine = Start(job, script);
    Train(*engine, bits);  // starts a save
    engine->Recut({0, 7, 10});
    Train(*engine, expected);
    engine->Save();
    engine->Close();
  }
  const std::string first = folder.Inside("runs/step-00000002");
  const auto engine = Start(MakeJob(2, 1, {{"resume", first}}), script);
  Bits again;
  Train(*engine, again);
  EXPECT_EQ(again, expected);
  engine->Close();
}

// ---- MovesOf() ----

bool Near(int a, int b) { return a % 2 == b % 2; }

TEST(MovesOf, TakesFromTheNearestWhoHasIt) {
  const std::vector<std::vector<StateRange>> has = {
      {{"w", 0, 8}}, {{"w", 0, 8}}, {{"v", 0, 4}}, {{"v", 4, 8}}};
  const std::vector<std::vector<StateRange>> wants = {
      {{"v", 2, 6}}, {{"w", 0, 8}}, {{"w", 0, 8}}, {{"w", 3, 5}}};
  EXPECT_THAT(MovesOf(has, wants, Near),
              ElementsAre(StateMove{2, 0, {"v", 2, 4}}, StateMove{3, 0, {"v", 4, 6}},
                          StateMove{1, 1, {"w", 0, 8}}, StateMove{0, 2, {"w", 0, 8}},
                          StateMove{1, 3, {"w", 3, 5}}));
}

TEST(MovesOf, AbortsWhereNobodyHasIt) {
  EXPECT_DEATH(MovesOf({{{"w", 0, 4}}}, {{{"w", 2, 6}}}, Near), "nobody has element 4 of w");
}

}  // namespace
}  // namespace strata
