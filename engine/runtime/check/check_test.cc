// Tests of checked steps: a flipped bit is found before the update, and its rank is named.
//
// STRATA_FLIPS and STRATA_CLEAN_STEPS (--test_env) say how many bits are flipped and how many steps
// must be without a finding; by default a part of them, for the gate.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <map>
#include <regex>

#include "engine/base/split_mix.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/comm/current.h"
#include "engine/runtime/check/flip.h"
#include "engine/runtime/check/step_check.h"
#include "engine/runtime/testing_job.h"
#include "engine/runtime/training_error.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using testing::FakeScript;
using ::testing::HasSubstr;
using testing::Make;
using testing::MapOf;
using testing::With;

enum class Net { kSkip, kTied, kImages };

/// A plan whose training is checked.
struct Case {
  std::string name;
  int pipe = 2, data = 1;
  Value::Map keys;
  Net net = Net::kSkip;
};

Value::Map Scheduled(const char* schedule, int stages_per_rank, Value::Map more = {}) {
  return With({{"schedule", schedule}, {"stages_per_rank", stages_per_rank}}, more);
}

/// All schedules; among them are bf16, fp16, recomputation, ZeRO, ties, an average, frozen layers,
/// optimizers that see whole parameters, and replicas of which some have less data.
std::vector<Case> Cases() {
  const Value bf16 = "bf16", fp16 = MapOf({{"1", "fp16"}}), every2 = MapOf({{"every", 2}});
  const Value muon = MapOf({{"1", "muon"},
                            {"lr", 0.01},
                            {"groups", Value::List{MapOf({{"1", "adamw"}, {"dims", "!=2"}})}}});
  return {
      {"1f1b", 3, 1, Scheduled("1f1b", 1)},
      {"gpipe", 2, 2, Scheduled("gpipe", 1, {{"zero", 1}})},
      {"interleaved_1f1b", 2, 2, Scheduled("interleaved_1f1b", 2, {{"precision", bf16}})},
      {"looped_bfs", 2, 2, Scheduled("looped_bfs", 2, {{"zero", 2}})},
      {"zb_h1", 3, 1, Scheduled("zb_h1", 1, {{"precision", bf16}})},
      {"zb_h2", 3, 1, Scheduled("zb_h2", 1)},
      {"interleaved_zb", 2, 2, Scheduled("interleaved_zb", 2)},
      {"zbv", 2, 2, Scheduled("zbv", 2, {{"zero", 1}, {"precision", fp16}})},
      {"v_half", 3, 1, Scheduled("v_half", 2)},
      {"v_min", 3, 1, Scheduled("v_min", 2, {{"ema", 0.9}})},
      {"dualpipev", 2, 2, Scheduled("dualpipev", 2)},
      {"recomputed", 3, 1, Scheduled("1f1b", 1, {{"recompute", every2}, {"precision", bf16}})},
      {"recomputed_stages", 3, 1, Scheduled("1f1b", 1, {{"recompute", true}})},
      {"replicas", 1, 3, Scheduled("1f1b", 1, {{"zero", 2}})},
      {"tied", 3, 1, Scheduled("1f1b", 1), Net::kTied},
      {"tied_bf16", 2, 2, Scheduled("zbv", 2, {{"precision", bf16}, {"zero", 1}}), Net::kTied},
      {"muon", 3, 1, Scheduled("zb_h1", 1, {{"optimizer", muon}})},
      {"adafactor", 2, 2, Scheduled("1f1b", 1, {{"optimizer", "adafactor"}})},
      {"frozen", 3, 1, Scheduled("1f1b", 1, {{"freeze", Value::List{0, 5}}})},
      {"images", 2, 2, Scheduled("1f1b", 1, {{"zero", 1}}), Net::kImages},
  };
}

/// Rows with dropout, a skip connection over several stages, and a head that runs in chunks.
std::vector<LayerSpec> SkipNet() {
  return {Make("Linear", {6, 32}),
          Make("skip", {"far"}),
          Make("Dropout", {0.3}),
          Make("ReLU"),
          Make("LayerNorm", {32}),
          Make("Linear", {32, 32}),
          Make("GELU"),
          Make("Dropout", {0.1}),
          Make("Linear", {32, 32}),
          Make("join", {"far"}),
          Make("Linear", {32, 5})};
}

/// A Linear that is used three times.
std::vector<LayerSpec> TiedNet() {
  std::vector<LayerSpec> layers = {Make("Linear", {6, 16})};
  for (int i = 0; i < 3; ++i) {
    layers.push_back(Make("Linear", {16, 16}));
    layers.back().tied_key = "w";
    layers.back().tied_weights = {"weight", "bias"};
    layers.push_back(Make("Tanh"));
    layers.push_back(Make("Dropout", {0.2}));
  }
  layers.push_back(Make("Linear", {16, 5}));
  return layers;
}

Job JobOf(const Case& c, const Value::Map& more, const std::vector<LayerSpec>& layers) {
  const Value::Map common = {{"parallel", MapOf({{"pipe", c.pipe}, {"data", c.data}})},
                             {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 4}})},
                             {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
                             {"clip", 0.5},
                             {"steps", 1000000}};
  const Value::Map keys = With(With(common, c.keys), more);
  if (c.net == Net::kImages) return testing::ImageJob(100, keys);
  const Value::Map rows = {{"input", MapOf({{"shape", Value::IntList({6})}})},
                           {"data", MapOf({{"train", testing::Function(1)}})}};
  return testing::MakeJob(layers, Make("CrossEntropyLoss"), With(rows, keys));
}

Job JobOf(const Case& c, const Value::Map& more) {
  return JobOf(c, more, c.net == Net::kTied ? TiedNet() : SkipNet());
}

FakeScript Script() {
  return testing::ScriptOf([](int64_t i) { return testing::Rows(i, 4); });
}

const Value::Map kEveryStep = {{"check", MapOf({{"every", 1}})}};

int Count(const char* variable, int otherwise) {
  const char* text = ::getenv(variable);
  return text ? std::atoi(text) : otherwise;
}

// ---- No false alarm ----

std::vector<std::string> Trained(const Job& job, int steps) {
  FakeScript script = Script();
  const auto engine = testing::Start(job, script);
  std::vector<std::string> bits;
  for (int i = 0; i < steps; ++i) bits.push_back(Str(engine->TrainStep().loss));
  for (const TensorDigest& tensor : engine->Parameters()) bits.push_back(tensor.digest);
  return bits;
}

TEST(Check, ChangesNothingAndFindsNothingInCleanSteps) {
  const std::vector<Case> cases = Cases();
  const int steps = Count("STRATA_CLEAN_STEPS", 320) / static_cast<int>(cases.size());
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    EXPECT_EQ(Trained(JobOf(c, kEveryStep), steps), Trained(JobOf(c, {}), steps));
  }
}

TEST(Check, RepeatsWorkOnTensorsOfAnyStrides) {
  const auto strided = [](const at::Tensor& x) { return at::stack({x, x}, -1).select(-1, 0); };
  FakeScript script = testing::ScriptOf([&](int64_t i) {
    const auto [input, target] = testing::Rows(i, 99);
    return MicroBatch{{strided(input[0].view({6, 99}))}, {target[0].slice(0, 0, 6)}};
  });
  script.layers[1] = [&](testing::FunctionLayer&, const Tensors& x, const Pass&) -> Tensors {
    return {
        strided(x[0] - x[0].mean(1, true) - x[0].square().mean(1, true))};  // bits go by strides
  };
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 4; ++i) {
    layers.push_back(testing::ScriptedLayer(1));
    layers.push_back(Make("Linear", {99, i < 3 ? 99 : 5}));
    if (i < 3) layers.push_back(testing::ScriptedLayer(1));
  }
  const Value cuts = Value::IntList({0, 3, 6, 9, 11});
  const Case c = {"strided", 2, 1, Scheduled("zbv", 2, {{"partition", cuts}})};
  const Value::Map more = {{"input", MapOf({{"shape", Value::IntList({99})}})},
                           {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 6}})}};
  const auto engine = testing::Start(JobOf(c, With(kEveryStep, more), layers), script);
  for (int i = 0; i < 30; ++i) engine->TrainStep();
}

TEST(Check, KeepsNothingInMemoryAfterItsStep) {
  const Case c = Cases()[0];
  std::vector<LayerSpec> layers = {Make("Linear", {6, 256})};
  for (int i = 0; i < 6; ++i) layers.push_back(Make("Linear", {256, 256}));
  layers.push_back(Make("Linear", {256, 5}));
  FakeScript script = Script();
  const auto engine = testing::Start(JobOf(c, {{"check", MapOf({{"every", 4}})}}, layers), script);
  std::vector<int64_t> peaks;  // of the time since the step before
  for (int i = 0; i < 19; ++i) peaks.push_back(engine->TrainStep().peak_memory);
  for (const size_t i : {6, 10, 14, 18}) {
    EXPECT_LT(peaks[i], peaks[2] + 100'000) << i << ": a gradient has 262,144 bytes";
  }
  EXPECT_GT(peaks[4], peaks[2] + 500'000) << "the check of step 4";
}

TEST(Check, LooksAtEveryNthStepOnly) {
  FakeScript script = Script();
  ::setenv("STRATA_FLIP", "0:update:1:lasting", 1);
  const auto engine = testing::Start(JobOf(Cases()[0], {{"check", MapOf({{"every", 5}})}}), script);
  for (int i = 0; i < 4; ++i) engine->TrainStep();
  ::unsetenv("STRATA_FLIP");
}

// ---- Flips ----

struct Found {
  int64_t flips = 0;  ///< that were made
  std::string error;  ///< "" if there was none
  int named = -1;     ///< the first rank that the error names
};

/// Trains with the flip until an error or for some steps.
Found TrainWith(const Job& job, const std::string& flip) {
  FakeScript script = Script();
  ::setenv("STRATA_FLIP", flip.c_str(), 1);
  // Bits in memory are looked at in the next checked step, all others before their step is done.
  const bool is_in_memory = std::regex_search(flip, std::regex(":(parameter|unchecked|state):"));
  const int64_t before = FlipsMade();
  Found found;
  const auto engine = testing::Start(job, script);
  ::unsetenv("STRATA_FLIP");
  try {
    for (int i = 0; i < 40; ++i) {
      engine->TrainStep();
      if (FlipsMade() > before && !is_in_memory) break;
    }
  } catch (const CorruptionError& error) {
    found.error = error.what();
    std::smatch match;
    if (std::regex_search(found.error, match, std::regex("rank (\\d+) on"))) {
      found.named = std::stoi(match[1]);
    }
  }
  found.flips = FlipsMade() - before;
  return found;
}

TEST(Check, FindsEveryFlipAndNamesItsRank) {
  const char* places[] = {"output", "input_gradient", "weight_gradient", "message",
                          "packet", "parameter",      "state",           "update"};
  const int wanted = Count("STRATA_FLIPS", 100);
  SplitMixRandom random(7);
  const std::vector<Case> cases = Cases();
  std::map<std::string, int> made;
  int right = 0, done = 0;
  for (int tries = 0; done < wanted; ++tries) {
    ASSERT_LT(tries, 3 * wanted) << "most flips did not happen";
    const Case& c = cases[static_cast<size_t>(tries) % cases.size()];
    const char* place = places[random.Below(std::size(places))];
    const bool lasts = random.Below(2) == 1;
    const std::string flip = Str(random.Below(c.pipe * c.data), ":", place, ":",
                                 random.Below(1000000), lasts ? ":lasting" : "");
    SCOPED_TRACE(Str(c.name, " ", flip));
    const Found found = TrainWith(JobOf(c, kEveryStep), flip);
    if (found.flips == 0) {
      EXPECT_EQ(found.error, "");
      continue;
    }
    ++done;
    ++made[place];
    EXPECT_NE(found.error, "") << "a flip was not found";
    if (found.named == std::stoi(flip)) {
      ++right;
    } else {
      ADD_FAILURE_AT(__FILE__, __LINE__) << found.error;
    }
  }
  EXPECT_GE(right, 0.99 * done);
  EXPECT_EQ(made.size(), std::size(places)) << "a place was never hit";
}

TEST(Check, SaysWhereAndWhat) {
  const Case c = Cases()[0];
  const std::pair<const char*, const char*> cases[] = {
      {"1:output:3",
       R"(rank 1 on .* \(stage 1, layers \d+ to \d+\) gave wrong bits( when it repeated stage \d)?: )"
       R"(the output of micro-batch \d; two other ranks agree on others)"},
      {"2:input_gradient:3", "rank 2 .*: the input gradient of micro-batch "},
      {"0:weight_gradient:3",
       R"(rank 0 .*: the weight gradient of \d\.(weight|bias) in B of micro)"},
      {"0:message:3", R"(the message from rank 0 .* to rank 1 .* changed on its way: the input of )"
                      R"(stage 1, micro-batch \d)"},
      {"2:packet:3", "what rank 2 .* sent to rank . .* to be repeated arrived damaged"},
      {"1:parameter:3", "rank 1 .* has wrong bits in memory: the parameters of stage 1 changed"},
      {"1:state:3", "rank 1 .* has wrong bits in memory: the optimizer's exp_avg(_sq)? of stage 1"},
      {"2:update:3", "rank 2 .* gave wrong bits.*: the updated parameters; two other"},
  };
  for (const auto& [flip, text] : cases) {
    const Found found = TrainWith(JobOf(c, kEveryStep), flip);
    EXPECT_TRUE(std::regex_search(found.error, std::regex(Str("^step \\d+ was not taken: ", text))))
        << flip << ": " << found.error;
  }
}

TEST(Check, TwoRanksNameARankOnlyIfItsFaultPasses) {
  const Case two = {"two", 2, 1, Scheduled("1f1b", 1)};
  for (const int rank : {0, 1}) {
    const Found passed = TrainWith(JobOf(two, kEveryStep), Str(rank, ":weight_gradient:5"));
    EXPECT_EQ(passed.named, rank);
    EXPECT_THAT(passed.error, HasSubstr("it gave others when it repeated its work"));
    const Found lasts = TrainWith(JobOf(two, kEveryStep), Str(rank, ":weight_gradient:5:lasting"));
    EXPECT_THAT(lasts.error, HasSubstr("there is no third rank to decide"));
  }
}

TEST(Check, ReplicasNoticeWhatHappensBetweenCheckedSteps) {
  for (const int replicas : {2, 3}) {
    const Case c = {"replicas", 1, replicas, Scheduled("1f1b", 1)};
    const Job job = JobOf(c, {{"check", MapOf({{"every", 3}})}});
    const std::string error = TrainWith(job, "1:unchecked:4").error;
    const char* text = replicas == 2
                           ? "rank 0 on .* and rank 1 on .* are replicas, but have different param"
                           : "taken: rank 1 on .* has other parameters or optimizer states than";
    EXPECT_TRUE(std::regex_search(error, std::regex(text))) << error;
  }
}

TEST(Check, RefusesFunctionsOfTheScriptThatCannotBeRepeated) {
  std::atomic<int> calls = 0;
  const std::pair<testing::FunctionLayer::Function, const char*> cases[] = {
      {[](testing::FunctionLayer&, const Tensors& x, const Pass&) -> Tensors {
         if (!CurrentTransport()) throw ConfigError("it asks other ranks");
         return {x[0] * 1};
       },
       "check repeats the work of stage \\d on another rank: .*it asks other ranks"},
      {[&](testing::FunctionLayer&, const Tensors& x, const Pass&) -> Tensors {
         return {x[0] + ++calls};
       },
       "so does a third rank: is there a function of the script that does not give the same"},
      {[at = 0](testing::FunctionLayer&, const Tensors& x, const Pass&) mutable -> Tensors {
         return {x[0] + ++at};
       },
       "rank \\d .* gave wrong bits: the .*; two other ranks agree on others. If its machine is "
       "fine: does layer 6 .net.lua:5. keep something from one call to the next"},
  };
  std::vector<LayerSpec> layers = SkipNet();
  layers.insert(layers.begin() + 6, testing::ScriptedLayer(1));
  for (const auto& [function, text] : cases) {
    const Job job = JobOf(Cases()[0], kEveryStep, layers);
    FakeScript script = Script();
    script.layers[1] = function;
    const std::string error = ErrorOf([&] {
      const auto engine = testing::Start(job, script);
      for (int i = 0; i < 40; ++i) engine->TrainStep();
    });
    EXPECT_TRUE(std::regex_search(error, std::regex(text))) << error;
  }
}

TEST(WrongRanks, FollowsTheThirdRank) {
  const CheckRanks three = {.drawn = 4, .second = 5, .third = 6}, two = {.drawn = 0, .second = 1};
  const Repetition first = {false, "the output", "a", "b"};
  const auto said = [](const char* mine) { return Repetition{false, "", "", mine}; };
  EXPECT_THAT(WrongRanks(three, first, {said("b")}), ElementsAre(4));
  EXPECT_THAT(WrongRanks(three, first, {said("a")}), ElementsAre(5));
  EXPECT_THAT(WrongRanks(three, first, {said("c")}), ElementsAre(4, 5));
  EXPECT_THAT(WrongRanks(two, first, {said("b"), said("b")}), ElementsAre(0));
  EXPECT_THAT(WrongRanks(two, first, {said("a"), said("a")}), ElementsAre(1));
  EXPECT_THAT(WrongRanks(two, first, {said("c"), said("b")}), ElementsAre(0));
  EXPECT_THAT(WrongRanks(two, first, {said("a"), said("b")}), ElementsAre(0, 1));
  EXPECT_THAT(WrongRanks(two, first, {said("c"), said("d")}), ElementsAre(0, 1));
}

TEST(Flip, RefusesWhatItIsNot) {
  for (const char* text : {"", "1:output", "x:output:1", "1:outptu:1", "1:output:1:once"}) {
    EXPECT_THAT(ErrorOf([&] { ParseFlip(text); }), HasSubstr("STRATA_FLIP")) << text;
  }
}

}  // namespace
}  // namespace strata
