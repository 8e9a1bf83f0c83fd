// Cuts inside of layers must not change any bit, wherever the parts are.
#include "engine/layers/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/checkpoint/testing.h"
#include "engine/cost/gradient_blocks.h"
#include "engine/runtime/testing_job.h"
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

/// Every kind of layer that has parts; one has a name, one has frozen parameters.
std::vector<LayerSpec> Layers() {
  const Value::Map options = {{"dim_feedforward", 12}, {"dropout", 0.3}, {"batch_first", true}};
  const auto with = [&](Value::Map more) {
    more.insert(more.end(), options.begin(), options.end());
    return more;
  };
  return {Make("Linear", {6, 8}),
          Make("TransformerEncoderLayer", {8, 2}, with({{"name", "first"}})),
          Make("TransformerDecoderLayer", {8, 2}, with({{"causal", true}})),
          Make("Dropout", {0.2}),
          Make("TransformerEncoderLayer", {8, 2}, with({{"norm_first", true}})),
          Make("Linear", {8, 5})};
}

LayerSpec Holding(const char* type, std::vector<LayerSpec> layers, Value::Map named = {}) {
  return MakeLayer(type, {}, named, std::move(layers), "net.lua:3");
}

/// Containers: one that draws random numbers at its end, one with statistics, one inside another. A
/// connection passes all of them.
std::vector<LayerSpec> Containers() {
  const LayerSpec relu = Make("ReLU", {}, {{"inplace", true}});
  return {
      Make("Linear", {6, 8}),
      Holding("Residual",
              {Make("LayerNorm", {8}), Make("Linear", {8, 12}), relu, Make("Linear", {12, 8}),
               Make("Dropout", {0.3}), Make("Linear", {8, 8})},
              {{"name", "mlp"}}),
      Make("skip", {"far"}),
      Holding("Sequential",
              {Make("Linear", {8, 8}), Make("BatchNorm1d", {3}), relu, Make("Linear", {8, 8})}),
      Holding("Residual", {Make("MultiheadAttention", {8, 2}, {{"batch_first", true}}),
                           Holding("Residual", {Make("Linear", {8, 8}), Make("Dropout", {0.2})}),
                           Make("Linear", {8, 8})}),
      Make("join", {"far"}),
      Make("Linear", {8, 5})};
}

MicroBatch Sequences(int64_t i) {
  const at::Tensor input = at::arange(4 * 3 * 6, at::kFloat).add(31 * i).mul(0.37).sin();
  return {{input.view({4, 3, 6})}, {at::arange(12).mul(7).add(3 * i).remainder(5).view({4, 3})}};
}

FakeScript Script() {
  FakeScript script;
  script.data[1] = [](int64_t i) { return Sequences(i); };
  return script;
}

Job MakeJob(int pipe, const Value& partition, const Value::Map& more = {},
            const std::vector<LayerSpec>& layers = Layers()) {
  const Value::Map keys = {{"input", MapOf({{"shape", Value::IntList({3, 6})}})},
                           {"parallel", MapOf({{"pipe", pipe}})},
                           {"partition", partition},
                           {"batch", MapOf({{"micro_batches", 4}, {"micro_batch_size", 4}})},
                           {"data", MapOf({{"train", testing::Function(1)}})},
                           {"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}})},
                           {"clip", 0.5},
                           {"steps", 6}};
  return testing::MakeJob(layers, Make("CrossEntropyLoss"), testing::With(keys, more));
}

/// The results that must not depend on the cuts.
std::vector<std::string> Train(Engine& engine, int steps) {
  std::vector<std::string> bits;
  for (int i = 0; i < steps; ++i) {
    const StepResult result = engine.TrainStep();
    bits.push_back(FormatDouble(result.loss) + " " + FormatDouble(result.grad_norm));
  }
  for (const TensorDigest& digest : engine.Parameters()) {
    bits.push_back(digest.path + " " + digest.digest);
  }
  return bits;
}

std::vector<std::string> TrainJob(const Job& job, int steps = 3) {
  FakeScript script = Script();
  const auto engine = Start(job, script);
  std::vector<std::string> bits = Train(*engine, steps);
  engine->Close();
  return bits;
}

struct Kind {
  const char* name;
  int pipe;
  Value::List cuts;
  Value::Map more = {};
  std::vector<LayerSpec> (*layers)() = Layers;
};

void PrintTo(const Kind& kind, std::ostream* out) { *out << kind.name; }

const std::vector<Kind>& Kinds() {
  static const Value slow = MapOf({{"layers", Value::List{2}}, {"lr", 0.001}});
  static const std::vector<Kind> kinds = {
      {"encoder", 2, {0, 1.1, 6}},
      {"decoder", 2, {0, 2.1, 6}},
      {"both_sides", 3, {0, 2.1, 4.1, 6}},
      {"a_part_alone", 3, {0, 2, 2.1, 6}},
      {"everywhere", 4, {0, 1.1, 2.1, 4.1, 6}},
      {"split_backwards", 3, {0, 1.1, 4.1, 6}, {{"schedule", "zb_h1"}}},
      {"two_stages_a_rank",
       2,
       {0, 1.1, 2.1, 4.1, 6},
       {{"schedule", "zbv"}, {"stages_per_rank", 2}}},
      {"recomputed", 2, {0, 2.1, 6}, {{"recompute", true}}},
      {"recomputed_layers", 2, {0, 2.1, 6}, {{"recompute", Value::List{2, "first"}}}},
      {"recomputed_every", 2, {0, 2.1, 6}, {{"recompute", MapOf({{"every", 2}})}}},
      {"replicas", 2, {0, 2.1, 6}, {{"parallel", MapOf({{"pipe", 2}, {"data", 2}})}}},
      {"zero1", 2, {0, 2.1, 6}, {{"parallel", MapOf({{"pipe", 2}, {"data", 2}})}, {"zero", 1}}},
      {"zero2", 2, {0, 2.1, 6}, {{"parallel", MapOf({{"pipe", 2}, {"data", 2}})}, {"zero", 2}}},
      {"frozen", 2, {0, 2.1, 6}, {{"freeze", Value::List{2, "first"}}}},
      {"groups",
       2,
       {0, 2.1, 6},
       {{"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}, {"groups", Value::List{slow}}})}}},
      {"bf16", 2, {0, 2.1, 6}, {{"precision", "bf16"}}},
      {"muon",
       2,
       {0, 2.1, 6},
       {{"optimizer", MapOf({{"1", "muon"},
                             {"lr", 0.01},
                             {"groups", Value::List{MapOf(
                                            {{"1", "adamw"}, {"dims", "!=2"}, {"lr", 0.01}})}}})}}},
  };
  return kinds;
}

const std::vector<Kind>& KindsOfContainers() {
  static const Value slow = MapOf({{"layers", Value::List{3}}, {"lr", 0.001}});
  static const Value::List two = {0, 1.2, 7}, three = {0, 1.1, 3.2, 7};
  static const Value replicas = MapOf({{"pipe", 2}, {"data", 2}});
  static const std::vector<Kind> kinds = {
      {"residual", 2, two},
      {"its_first", 2, {0, 1.1, 7}},
      {"its_last", 2, {0, 1.4, 7}},
      {"a_part_between", 3, {0, 1.1, 1.2, 7}},
      {"parts_between", 3, {0, 1.2, 1.4, 7}},
      {"sequential", 2, {0, 3.1, 7}},
      {"its_statistics", 3, {0, 3.1, 3.2, 7}},
      {"attention", 2, {0, 4.1, 7}},
      {"everywhere", 8, {0, 1.1, 1.2, 1.3, 1.4, 3.2, 4, 4.1, 7}},
      {"split_backwards", 3, three, {{"schedule", "zb_h1"}}},
      {"gpipe", 3, three, {{"schedule", "gpipe"}}},
      {"two_stages_a_rank",
       2,
       {0, 1.1, 1.3, 4.1, 7},
       {{"schedule", "zbv"}, {"stages_per_rank", 2}}},
      {"recomputed", 3, three, {{"recompute", true}}},
      {"recomputed_layers", 3, three, {{"recompute", Value::List{"mlp", 3}}}},
      {"recomputed_every", 3, three, {{"recompute", MapOf({{"every", 1}})}}},
      {"replicas", 2, {0, 3.2, 7}, {{"parallel", replicas}}},
      {"zero1", 2, two, {{"parallel", replicas}, {"zero", 1}}},
      {"zero2", 2, two, {{"parallel", replicas}, {"zero", 2}}},
      {"frozen", 2, two, {{"freeze", Value::List{"mlp"}}}},
      {"first_frozen", 2, two, {{"freeze", Value::List{0}}}},
      {"groups",
       2,
       {0, 3.2, 7},
       {{"optimizer", MapOf({{"1", "adamw"}, {"lr", 0.01}, {"groups", Value::List{slow}}})}}},
      {"bf16", 3, three, {{"precision", "bf16"}}},
  };
  return kinds;
}

class CutInside : public ::testing::TestWithParam<Kind> {};

TEST_P(CutInside, ChangesNoBit) {
  const Kind& kind = GetParam();
  Value::Map whole = kind.more;
  std::erase_if(whole, [](const auto& entry) {
    return entry.first == "schedule" || entry.first == "zero" || entry.first == "stages_per_rank" ||
           entry.first == "recompute";
  });
  for (auto& [key, value] : whole) {
    if (key == "parallel") value.Set("pipe", 1);
  }
  EXPECT_EQ(TrainJob(MakeJob(kind.pipe, kind.cuts, kind.more, kind.layers())),
            TrainJob(MakeJob(1, "parameters", whole, kind.layers())));
}

INSTANTIATE_TEST_SUITE_P(All, CutInside, ::testing::ValuesIn(Kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

std::vector<Kind> OfContainers() {
  std::vector<Kind> kinds = KindsOfContainers();
  for (Kind& kind : kinds) kind.layers = Containers;
  return kinds;
}
INSTANTIATE_TEST_SUITE_P(Containers, CutInside, ::testing::ValuesIn(OfContainers()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(CutsInside, MoveWhileAJobTrains) {
  const Job job = MakeJob(2, "auto", {{"stages_per_rank", 2}, {"schedule", "interleaved_1f1b"}});
  ASSERT_TRUE(HasParts(job.layers));
  const CutNames names(job.layers);
  FakeScript script = Script();
  const auto engine = Start(job, script);
  std::vector<std::string> bits, expected;
  const auto train = [](Engine& with, std::vector<std::string>& all) {
    const std::vector<std::string> more = Train(with, 1);
    all.insert(all.end(), more.begin(), more.end());
  };
  train(*engine, bits);
  for (const Value::List& cuts :
       {Value::List{0, 1.1, 2, 4.1, 6}, Value::List{0, 1, 2.1, 4, 6}, Value::List{0, 1, 2, 4, 6}}) {
    engine->Recut(names.Positions(cuts, "cuts"));
    train(*engine, bits);
  }
  engine->Close();
  const auto unmoved = Start(MakeJob(1, "parameters"), script);
  for (int i = 0; i < 4; ++i) train(*unmoved, expected);
  unmoved->Close();
  EXPECT_EQ(bits, expected);
}

TEST(CutsInside, GoOnFromSavesOfOtherCuts) {
  const TestFolder folder;
  const std::vector<std::string> expected = TrainJob(MakeJob(1, "parameters"), 6);
  const auto go_on = [&](const Job& job) {
    FakeScript script = Script();
    const auto engine = Start(job, script);
    const std::vector<std::string> bits = Train(*engine, 2);
    engine->Save();
    engine->Close();
    return bits;
  };
  const auto job = [&](int pipe, const Value& partition) {
    return MakeJob(pipe, partition,
                   {{"save", MapOf({{"dir", folder.path()}})}, {"resume", "latest"}});
  };
  go_on(job(2, Value::List{0, 2.1, 6}));
  go_on(job(1, "parameters"));
  const std::vector<std::string> bits = go_on(job(3, Value::List{0, 1.1, 4.1, 6}));
  EXPECT_EQ(std::vector(bits.begin() + 2, bits.end()),
            std::vector(expected.begin() + 6, expected.end()));
}

/// Statistics in a container keep their names in saves.
TEST(CutsInside, OfContainersGoOnFromSavesOfOtherCuts) {
  const TestFolder folder;
  const auto job = [&](int pipe, const Value& partition, bool saves) {
    const Value::Map keys = {{"save", MapOf({{"dir", folder.path()}})}, {"resume", "latest"}};
    return MakeJob(pipe, partition, saves ? keys : Value::Map(), Containers());
  };
  const std::vector<std::string> expected = TrainJob(job(1, "parameters", false), 6);
  const auto go_on = [&](const Job& part) {
    FakeScript script = Script();
    const auto engine = Start(part, script);
    const std::vector<std::string> bits = Train(*engine, 2);
    engine->Save();
    engine->Close();
    return bits;
  };
  go_on(job(2, Value::List{0, 3.1, 7}, true));
  go_on(job(1, "parameters", true));
  const std::vector<std::string> bits = go_on(job(3, Value::List{0, 1.2, 3.2, 7}, true));
  EXPECT_EQ(std::vector(bits.begin() + 2, bits.end()),
            std::vector(expected.begin() + 6, expected.end()));
}

/// A scripted layer in a container, which may draw as it likes, is in the last part.
TEST(CutsInside, BeforeAScriptedLayerChangeNoBit) {
  const auto bits = [](int pipe, const Value& partition) {
    FakeScript script = Script();
    script.layers[7] = [](auto&, const Tensors& x, const Pass&) {
      return Tensors{x[0].mul(at::rand(x[0].sizes(), x[0].options()))};
    };
    LayerSpec function = testing::ScriptedLayer(7);
    const Job job = MakeJob(pipe, partition, {},
                            {Make("Linear", {6, 8}),
                             Holding("Residual", {Make("Linear", {8, 8}), function,
                                                  Make("Linear", {8, 8}), Make("Dropout", {0.2})}),
                             Make("Linear", {8, 5})});
    const auto engine = Start(job, script);
    std::vector<std::string> all = Train(*engine, 3);
    engine->Close();
    return all;
  };
  EXPECT_EQ(bits(2, Value::List{0, 1.1, 3}), bits(1, "parameters"));
}

/// Parameters are summed and listed in the order of the whole layer, however many it has.
TEST(CutsInside, AmongManyParametersChangeNoBit) {
  const auto bits = [](int pipe, const Value& partition) {
    const std::vector<LayerSpec> many(20, Make("Linear", {6, 6}));
    return TrainJob(MakeJob(pipe, partition, {},
                            {Holding("Sequential", many), Make("Linear", {6, 6}),
                             Holding("Residual", {Make("Linear", {6, 6}), Make("Tanh")}),
                             Make("Linear", {6, 5})}),
                    2);
  };
  EXPECT_EQ(bits(2, Value::List{0, 0.9, 4}), bits(1, "parameters"));
}

/// A function that chooses what is recomputed gets layers of the script's list, not parts.
TEST(CutsInside, AreNothingToARecomputeFunction) {
  std::vector<std::string> seen;
  FakeScript script = Script();
  script.functions[3] = [&](const Value::List& arguments) {
    const Value& layer = arguments[0];
    seen.push_back(Str(layer["index"].as_int(), " ", layer["type"].as_string(), " ",
                       layer["parameters"].as_int()));
    return Value(layer["type"] == Value("Residual"));
  };
  const Job job =
      MakeJob(2, Value::List{0, 4.1, 7}, {{"recompute", testing::Function(3)}}, Containers());
  const Plan plan = PlanJob(job, {}, &script);
  EXPECT_THAT(seen, ElementsAre("0 Linear 56", "1 Residual 300", "2 skip 0", "3 Sequential 150",
                                "4 Residual 288", "4 Residual 144", "5 join 0", "6 Linear 45"));
  std::vector<int> segments;
  for (const LayerPlan& layer : plan.layers) segments.push_back(layer.segment);
  EXPECT_THAT(segments, ElementsAre(-1, 0, 0, 0, 0, 0, -1, -1, -1, -1, -1, 1, 2, -1, -1));
}

TEST(CutsInside, AreRefusedWhereThereIsNoPlace) {
  const auto refused = [](const Value::List& cuts, const Value::Map& more = {}) {
    return ConfigErrorOf([&] { MakeJob(2, cuts, more); });
  };
  EXPECT_THAT(refused({0, 3.1, 6}),
              HasSubstr("partition: there is no place 3.1 to cut; layer 3 cannot be cut inside; "
                        "others can, at 1.1, 2.1, 4.1"));
  EXPECT_THAT(ConfigErrorOf([] {
                MakeJob(2, Value::List{0, 3.7, 7}, {}, Containers());
              }),
              HasSubstr("partition: there is no place 3.7 to cut; layer 3 can be cut at 3.1, 3.2, "
                        "3.3"));
  EXPECT_THAT(refused({0, 2.2, 6}), HasSubstr("no place 2.2 to cut; layer 2 can be cut at 2.1"));
  EXPECT_THAT(refused({0, 2.1, 7}), HasSubstr("no place 7 to cut; the list has 6 layers"));
  EXPECT_THAT(refused({0, 2.1, 6}, {{"parallel", MapOf({{"pipe", 2}, {"model", 2}})}}),
              HasSubstr("a cut inside of a layer, and parallel.model above 1: keep one of them"));
  EXPECT_THAT(refused({0, 2.1, 6}, {{"costs", "some.json"}}),
              HasSubstr("and costs, a file of whole layers: keep one of them"));
  const auto unplanned = [](const Value::List& cuts) {
    return ConfigErrorOf([&] {
      FakeScript script = Script();
      PlanJob(MakeJob(3, cuts), {}, &script);
    });
  };
  EXPECT_THAT(unplanned({0, 4.1, 2.1, 6}),
              HasSubstr("numbers that ascend from 0 to 6 (the number of layers), got "
                        "{0, 4.1, 2.1, 6}: 2.1 follows 4.1"));
  EXPECT_THAT(unplanned({0, 2.1, 6}), HasSubstr("4 bounds are needed"));
}

/// A matrix is shared by layers before and after the cuts.
TEST(CutsInside, WithTiesChangeNoBit) {
  const auto bits = [](int pipe, const Value& partition) {
    std::vector<LayerSpec> layers = Layers();
    LayerSpec tied = Make("Linear", {8, 8});
    tied.tied_key = "mix";
    layers.insert(layers.begin() + 3, tied);
    layers.insert(layers.begin() + 1, tied);
    return TrainJob(MakeJob(pipe, partition, {}, layers));
  };
  const std::vector<std::string> expected = bits(1, "parameters");
  EXPECT_EQ(bits(2, Value::List{0, 2.1, 8}), expected);
  EXPECT_EQ(bits(3, Value::List{0, 2.1, 6.1, 8}), expected);
  EXPECT_EQ(bits(2, "auto"), expected);
}

/// The feed-forward block is told the length of the memory; the attention before it draws random
/// numbers.
TEST(CutsInside, BehindAMemoryChangeNoBit) {
  const auto bits = [](int pipe, const Value& partition) {
    const Value::Map options = {{"dim_feedforward", 12}, {"dropout", 0.3}, {"batch_first", true}};
    return TrainJob(
        MakeJob(pipe, partition, {},
                {Make("Linear", {6, 8}), Make("skip", {"m"}), Make("Linear", {8, 8}),
                 Make("join", {"m"}, {{"how", "pass"}}),
                 Make("TransformerDecoderLayer", {8, 2}, options), Make("Linear", {8, 5})}));
  };
  const std::vector<std::string> expected = bits(1, "parameters");
  EXPECT_EQ(bits(2, Value::List{0, 4.1, 6}), expected);
  EXPECT_EQ(bits(3, Value::List{0, 2, 4.1, 6}), expected);
}

/// Saves do not contain the parts, and jobs on one rank have none.
TEST(CutsInside, AreChosenWhereTheyBalance) {
  for (const auto layers : {Layers, Containers}) {
    const auto make = [&](int pipe, const char* partition) {
      return MakeJob(pipe, partition, {}, layers());
    };
    const Job job = make(2, "auto");
    EXPECT_TRUE(HasParts(job.layers));
    EXPECT_FALSE(HasParts(make(1, "auto").layers));
    EXPECT_FALSE(HasParts(make(2, "parameters").layers));
    EXPECT_EQ(job.ToValue()["layers"], make(1, "auto").ToValue()["layers"]);
    EXPECT_EQ(TrainJob(job), TrainJob(make(1, "parameters")));
  }
}

}  // namespace
}  // namespace strata
