// Which weights `adapt` chooses, what it freezes, and what it refuses.
#include "engine/job/adapt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/job/flags/overrides.h"
#include "engine/job/job_fields.h"
#include "engine/job/parameter_groups.h"
#include "engine/job/testing_job.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayerSpec Named(const char* type, Value::List positional, const char* name, Value::Map more = {}) {
  more.emplace_back("name", name);
  return Layer(type, std::move(positional), std::move(more));
}

/// A layer of strata.layer with a matrix of its own and two layers.
LayerSpec Own() {
  LayerSpec own;
  own.type = "Block";
  own.name = "block";
  own.scripted = true;
  own.forward = Function("net.lua:6");
  own.children = {Named("RMSNorm", {8}, "norm"), Named("GroupedQueryAttention", {8, 2}, "attn")};
  own.script_parameters = {{.name = "gain", .shape = {8, 8}},
                           {.name = "norm.weight", .shape = {8}}};
  for (const char* name : {"q", "k", "v", "o"}) {
    own.script_parameters.push_back({.name = Str("attn.", name, "_proj.weight"), .shape = {8, 8}});
  }
  return own;
}

LayerSpec Stack(Value::Map more = {}) {
  const LayerSpec layer = Layer("TransformerEncoderLayer", {8, 2});
  more.emplace_back("num_layers", 2);
  return MakeLayer("TransformerEncoder", {}, more, {layer}, "net.lua:4");
}

/// A network with a layer of every kind that holds or has matrices.
RawJob NetJob(Value::Map adapt, Value::Map more = {}) {
  RawJob raw = SmallJob(std::move(more));
  adapt.emplace_back("1", "lora");
  raw.keys.Set("adapt", MapOf(std::move(adapt)));
  raw.layers =
      Items({Item(Named("Embedding", {16, 8}, "embed")), Item(Own()),
             Item(Named("MultiheadAttention", {8, 2}, "mha")),
             Item(Holding("Residual", {Layer("SwiGLU", {8, 12}), Layer("Linear", {8, 8})})),
             Item(Stack({{"name", "stack"}})), Item(Named("Linear", {8, 16}, "head"))});
  return raw;
}

Job BuildNet(const char* layers, Value::Map more = {}, Value::Map adapt = {}) {
  adapt.emplace_back("layers", layers);
  return BuildJob(NetJob(std::move(adapt), std::move(more)), {});
}

std::vector<std::string> Learning(const Job& job) {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(job.layers.size()); ++i) {
    for (const NamedParameter& place : NamedParametersOf(job.layers, i)) {
      const bool learns = !job.layers[static_cast<size_t>(i)].IsFrozen(place.spec.name);
      EXPECT_EQ(job.adapt.IsBase(place.name), !learns) << place.name;
      if (learns) names.push_back(Str(place.name, " ", FormatShape(place.spec.shape)));
    }
  }
  return names;
}

TEST(Adapt, AddsPartsToWeightsWhereverTheyStand) {
  const Value::Map rank = {{"rank", 2}};
  EXPECT_THAT(Learning(BuildNet("head", {}, rank)),
              ElementsAre("head.lora_A.weight (2, 8)", "head.lora_B.weight (16, 2)"));
  EXPECT_THAT(Learning(BuildNet("q_proj|v_proj", {}, rank)),
              ElementsAre("block.attn.q_proj.lora_A.weight (2, 8)",
                          "block.attn.q_proj.lora_B.weight (8, 2)",
                          "block.attn.v_proj.lora_A.weight (2, 8)",
                          "block.attn.v_proj.lora_B.weight (8, 2)"));
  EXPECT_THAT(
      Learning(BuildNet("^mha.*(in|out)_proj", {}, rank)),
      ElementsAre("mha.in_proj_weight.lora_A.weight (2, 8)",
                  "mha.in_proj_weight.lora_B.weight (24, 2)", "mha.out_proj.lora_A.weight (2, 8)",
                  "mha.out_proj.lora_B.weight (8, 2)"));
  EXPECT_THAT(
      Learning(BuildNet("down_proj|3\\.1", {}, rank)),
      ElementsAre("3.0.down_proj.lora_A.weight (2, 12)", "3.0.down_proj.lora_B.weight (8, 2)",
                  "3.1.lora_A.weight (2, 8)", "3.1.lora_B.weight (8, 2)"));
  EXPECT_EQ(Learning(BuildNet("linear1")).size(), 4u) << "two copies in the stack";
}

TEST(Adapt, FreezesTheRestButWhatTrainNames) {
  const Job job = BuildNet("head", {}, {{"train", "norm2.bias|embed"}});
  EXPECT_THAT(Learning(job),
              ElementsAre("embed.weight (16, 8)", "stack.layers.0.norm2.bias (8,)",
                          "stack.layers.1.norm2.bias (8,)", "head.lora_A.weight (8, 8)",
                          "head.lora_B.weight (16, 8)"));
  EXPECT_FALSE(job.layers[0].frozen);
  EXPECT_TRUE(job.layers[1].frozen);
  const LayerSpec& layer = job.layers[4].children[0];
  EXPECT_FALSE(layer.frozen);
  EXPECT_TRUE(layer.IsFrozen("linear1.weight"));
  EXPECT_FALSE(layer.IsFrozen("norm2.bias"));
  // A layer in which nothing learns is frozen as a whole, also inside another.
  const Job other = BuildNet("3\\.1");
  EXPECT_TRUE(other.layers[3].children[0].frozen);
  EXPECT_TRUE(other.layers[4].frozen);
  EXPECT_TRUE(other.layers[4].children[0].frozen) << "on which its costs depend";
}

TEST(Adapt, CanonicalFormSaysWhatIsComputed) {
  const Job job = BuildNet("head", {}, {{"alpha", 4}, {"dropout", 0.1}});
  EXPECT_EQ(job.ToValue()["adapt"]["options"]["rank"], Value(8));
  EXPECT_EQ(job.ToValue()["layers"].as_list()[5]["low_rank"]["alpha"], Value(4.0));
  EXPECT_TRUE(MayDraw(job.layers[5]));
  EXPECT_TRUE(Build().ToValue()["adapt"].is_null());
}

/// Names of the published model choose as well, in the script's map.
TEST(Adapt, TakesPublishedNames) {
  const auto rule = [](const char* ours, Value theirs) {
    return MapOf({{"1", ours}, {"2", std::move(theirs)}});
  };
  const auto weights = [&](Value::List rules) {
    Value map;
    for (size_t i = 0; i < rules.size(); ++i) map.Set(std::to_string(i + 1), rules[i]);
    return Value::Map{{"weights", MapOf({{"from", "x"}, {"map", map}})}};
  };
  const Value rest = rule("{rest*}", "model.{rest*}");
  const auto published = weights({rule("head.weight", "score.weight"),
                                  rule("mha.in_proj_weight", Value::List{"query", "key", "value"}),
                                  rule("3.1.weight", "mha.out.weight"), rest});
  EXPECT_EQ(Learning(BuildNet("score", published)), Learning(BuildNet("head", published)));
  EXPECT_EQ(Learning(BuildNet("query|key|value", published)).size(), 2u);
  // Each alternative matches a published name, but not each a name in saves.
  EXPECT_EQ(Learning(BuildNet("score|mha\\.(out|o)_proj", published)),
            Learning(BuildNet("head|mha\\.out_proj", published)));
  EXPECT_THAT(ErrorOf([&] { BuildNet("query|value", published); }),
              HasSubstr("mha.in_proj_weight holds query, key, value in one matrix, and the "
                        "expression matches only 2 of them"));
  EXPECT_THAT(
      ErrorOf([&] { BuildNet("mha.*out", published); }),
      HasSubstr("has two readings: by names in saves it is mha.out_proj.weight; by names of "
                "the published model (weights.map) it is mha.out_proj.weight, 3.1.weight"));
}

TEST(Adapt, RefusesWhatItCannotDo) {
  struct Case {
    const char* layers;
    Value::Map adapt;
    Value::Map keys;
    const char* error;
  };
  for (const Case& c : std::vector<Case>{
           {"q_porj|heed",
            {},
            {},
            "adapt.layers: no parameter's name matches \"q_porj|heed\"; did "
            "you mean \"q_proj\" or \"head\"?"},
           {"head|q_porj",
            {},
            {},
            "no parameter's name matches \"q_porj\"; did you mean \"q_proj\"?"},
           {"zzzzzzzz", {}, {}, "the names have the words "},
           {"(", {}, {}, "is not a regular expression"},
           {"embed",
            {},
            {},
            "matches embed.weight, which can have no low-rank part: it belongs to "
            "Embedding"},
           {"norm1", {}, {}, "it belongs to TransformerEncoderLayer and is no matrix"},
           {"gain", {}, {}, "it is a parameter of the script's layer Block"},
           {"head.bias", {}, {}, "matches only biases: head.bias"},
           {"layers\\.1\\.linear1", {}, {}, "the copies of a stack are declared as one"},
           {"head",
            {{"train", "head.weight"}},
            {},
            "adapt.train: \"head.weight\" matches "
            "head.weight, which has a low-rank part"},
           {"head", {{"rank", 0}}, {}, "rank expects an integer, at least 1; got the number 0"},
           {"head", {{"dropout", 1}}, {}, "below 1; got the number 1"},
           {"head", {{"rnak", 4}}, {}, "did you mean \"rank\"?"},
           {"head", {{"r", 4}}, {}, "did you mean \"rank\"?"},  // PEFT's names
           {"head", {{"target_modules", "head"}}, {}, "did you mean \"layers\"?"},
           {"head", {}, {{"freeze", 0}}, "keep one of them"},
       }) {
    EXPECT_THAT(ErrorOf([&] { BuildNet(c.layers, c.keys, c.adapt); }), HasSubstr(c.error))
        << c.layers;
  }
  EXPECT_THAT(ErrorOf([&] {
                Build({{"adapt", MapOf({{"1", "lroa"}, {"layers", "1"}})}});
              }),
              HasSubstr("there is no adapt \"lroa\"; did you mean \"lora\"?"));
  EXPECT_THAT(ErrorOf([&] { Build({{"adapt", MapOf({{"1", "lora"}})}}); }), HasSubstr("layers"));
}

/// The names of the weights in few bits.
std::vector<std::string> PackedNames(const Job& job, Packing packing) {
  std::vector<std::string> names;
  for (int i = 0; i < static_cast<int>(job.layers.size()); ++i) {
    for (const NamedParameter& place : NamedParametersOf(job.layers, i)) {
      if (place.spec.packing == Packing::kNone) continue;
      EXPECT_EQ(place.spec.packing, packing);
      EXPECT_TRUE(job.layers[static_cast<size_t>(i)].IsFrozen(place.spec.name)) << place.name;
      names.push_back(place.name);
    }
  }
  return names;
}

/// All frozen matrices of linear operators, with low-rank parts or without, but not the head.
TEST(Adapt, HoldsTheBaseInFewBits) {
  std::vector<std::string> all = {"block.attn.q_proj.weight", "block.attn.k_proj.weight",
                                  "block.attn.v_proj.weight", "block.attn.o_proj.weight",
                                  "mha.in_proj_weight",       "mha.out_proj.weight",
                                  "3.0.gate_proj.weight",     "3.0.up_proj.weight",
                                  "3.0.down_proj.weight",     "3.1.weight"};
  for (const char* copy : {"0", "1"}) {
    for (const char* weight : {"self_attn.in_proj_weight", "self_attn.out_proj.weight",
                               "linear1.weight", "linear2.weight"}) {
      all.push_back(Str("stack.layers.", copy, ".", weight));
    }
  }
  for (const Packing packing : {Packing::kNf4, Packing::kInt8}) {
    const Value::Map base = {{"base", PackingName(packing)}};
    const Job job = BuildNet("q_proj|head", {}, base);
    EXPECT_THAT(PackedNames(job, packing), ::testing::UnorderedElementsAreArray(all));
    EXPECT_EQ(Learning(job), Learning(BuildNet("q_proj|head")));
    EXPECT_EQ(job.ToValue()["layers"].as_list()[2]["packed"]["packing"],
              Value(PackingName(packing)));
  }
  // What `train` names, a tied layer, and one with a dtype of its own stay as they are.
  const auto without = BuildNet("q_proj", {}, {{"base", "nf4"}, {"train", "mha|linear1"}});
  EXPECT_EQ(PackedNames(without, Packing::kNf4).size(), all.size() - 4);
  RawJob raw = NetJob({{"layers", "head"}, {"base", "nf4"}});
  LayerSpec tied = Named("Linear", {8, 8}, "one"), again = Named("Linear", {8, 8}, "two");
  tied.tied_key = again.tied_key = "w";
  const LayerSpec wide = Named("Linear", {8, 8}, "wide", {{"dtype", "float64"}});
  const LayerSpec head = Named("Linear", {8, 16}, "head");
  raw.layers = Items({Item(Named("Embedding", {16, 8}, "embed")), Item(tied), Item(again),
                      Item(wide), Item(head)});
  EXPECT_THAT(ErrorOf([&] { BuildJob(raw, {}); }),
              HasSubstr("there is no frozen weight of a linear operator that could be held so"));
  EXPECT_THAT(ErrorOf([&] {
                BuildNet("head", {}, {{"base", "nf5"}});
              }),
              HasSubstr("base expects one of \"nf4\""));
}

TEST(Adapt, TakesTheFlagThatFreezesNothing) {
  const RawJob raw = NetJob({{"layers", "head"}}, {{"freeze", 0}});
  const Value flags = Overrides(Value::MakeMap({{"freeze", "none"}}), "net.lua:20");
  EXPECT_EQ(Learning(BuildJob(raw, flags)), Learning(BuildNet("head")));
}

TEST(Adapt, RefusesTiedWeights) {
  RawJob raw = SmallJob({{"adapt", MapOf({{"1", "lora"}, {"layers", "first"}})}});
  LayerSpec first = Named("Linear", {64, 64}, "first"),
            second = Named("Linear", {64, 64}, "second");
  first.tied_key = second.tied_key = "w";
  raw.layers = Items({Item(first), Item(second)});
  EXPECT_THAT(ErrorOf([&] { BuildJob(raw, {}); }), HasSubstr("it is tied"));
}

/// Later parts of a Transformer layer skip what earlier ones draw; they do not know of the dropout
/// before low-rank parts.
TEST(Adapt, WithDropoutIsNotCutInside) {
  const auto parts = [](double dropout) {
    RawJob raw =
        SmallJob({{"adapt", MapOf({{"1", "lora"}, {"layers", "1"}, {"dropout", dropout}})}});
    raw.layers =
        Items({Item(Layer("Linear", {8, 8})), Item(Layer("TransformerEncoderLayer", {8, 2})),
               Item(Layer("Linear", {8, 8}))});
    raw.keys.Set("adapt", MapOf({{"1", "lora"}, {"layers", "linear1"}, {"dropout", dropout}}));
    return InParts(BuildJob(raw, {}).layers, [](int) { return true; }).size();
  };
  EXPECT_EQ(parts(0), 4u);
  EXPECT_EQ(parts(0.1), 3u);
}

/// A job that adapts needs weights and a save: the save does not have the base.
TEST(Adapt, TakesResumeBesideWeights) {
  const Value::Map both = {{"resume", "runs/a"}, {"weights", MapOf({{"from", "base"}})}};
  EXPECT_EQ(BuildNet("head", both).resume, "runs/a");
  EXPECT_THAT(ErrorOf([&] { Build(both); }), HasSubstr("keep one of them"));
  EXPECT_THAT(ErrorOf([&] {
                BuildNet("head", both, {{"from", "parts"}});
              }),
              HasSubstr("resume and adapt.from both say"));
}

}  // namespace
}  // namespace strata
