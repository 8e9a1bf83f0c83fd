#include "engine/job/parameter_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/job/job_fields.h"
#include "engine/job/testing_job.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// A job with three groups: the weights of layer 3, all biases, and everything in layer 1.
Job Grouped() {
  Value::List groups = {
      MapOf({{"layers", Value::List{3}}, {"parameters", "weight"}, {"lr", 1}}),
      MapOf({{"parameters", "bias|norm"}, {"weight_decay", 0}}),
      MapOf({{"layers", 1}, {"momentum", 0.5}}),
  };
  return Build({{"optimizer", MapOf({{"1", "sgd"},
                                     {"lr", 0.1},
                                     {"weight_decay", 0.01},
                                     {"momentum", 0.9},
                                     {"groups", std::move(groups)}})}});
}

int GroupOf(int layer, const std::string& parameter) {
  const Job job = Grouped();
  return FindParameterGroup(job.optimizer, job.layers, layer, parameter);
}

TEST(CountMoments, EveryOptimizerTellsThem) {
  for (const OptionTable& type : OptimizerTypes()) EXPECT_NE(type.moments, nullptr) << type.name;
  const auto count = [](Value optimizer) {
    return CountMoments(Build({{"optimizer", std::move(optimizer)}}).optimizer);
  };
  EXPECT_EQ(count(MapOf({{"1", "sgd"}, {"lr", 0.1}})), 0);
  EXPECT_EQ(count(MapOf({{"1", "sgd"}, {"lr", 0.1}, {"momentum", 0.9}})), 1);
  EXPECT_EQ(count(MapOf({{"1", "adam"}, {"lr", 0.1}})), 2);
  EXPECT_EQ(count(MapOf({{"1", "adamw"}, {"lr", 0.1}, {"amsgrad", true}})), 3);
}

TEST(CountMoments, GroupsAndWholeParametersHaveMoreOrLess) {
  const Job muon = Build(
      {{"optimizer", MapOf({{"1", "muon"},
                            {"groups", Value::List{MapOf({{"1", "adamw"}, {"dims", "!=2"}})}}})}});
  EXPECT_EQ(CountMoments(muon.optimizer), 1);
  EXPECT_EQ(GroupType(muon.optimizer, 0), "adamw");
  EXPECT_EQ(GroupOptions(muon.optimizer, 0)["weight_decay"], Value(0.01));
  const auto extra = [](const Job& job, size_t parameter) {
    return ExtraState(job.optimizer, job.layers, 1, ParametersOf(job.layers[1])[parameter]);
  };
  EXPECT_EQ(extra(muon, 0), 0);
  EXPECT_EQ(extra(muon, 1), 32);
  const Job adafactor = Build({{"optimizer", "adafactor"}});
  EXPECT_EQ(extra(adafactor, 0), 64 + 32);
  EXPECT_EQ(extra(adafactor, 1), 32);
  EXPECT_EQ(CountMoments(Build({{"optimizer", "lion"}, {"ema", 0.9}}).optimizer), 2);
}

TEST(CheckParameterGroups, WholeParametersAreNamed) {
  EXPECT_EQ(ErrorOf([] {
              Build({{"optimizer", "muon"}});
            }),
            "net.lua:3: the job: optimizer muon updates matrices, and 1.bias is (32,): give such "
            "parameters "
            "another optimizer, as groups = {{\"adamw\", dims=\"!=2\", lr=...}}");
  EXPECT_EQ(ErrorOf([] {
              CheckWholeParameters(Build({{"optimizer", "adafactor"}, {"zero", 1}}));
            }),
            "optimizer adafactor: its update needs whole parameters, which "
            "zero = 1 cuts into shares; use zero = 0 and model = 1, or another optimizer");
  EXPECT_NE(ErrorOf([] {
              CheckWholeParameters(
                  Build({{"optimizer", "adafactor"}, {"parallel", MapOf({{"model", 2}})}}));
            }),
            "");
}

TEST(FindParameterGroup, TheFirstThatTakesItHolds) {
  EXPECT_EQ(GroupOf(3, "weight"), 0);
  EXPECT_EQ(GroupOf(3, "bias"), 1);
  EXPECT_EQ(GroupOf(1, "bias"), 1);
  EXPECT_EQ(GroupOf(1, "weight"), 2);
}

/// A Transformer layer named "h", and a layer that shares its weight with the layer before it.
std::vector<LayerSpec> NamedLayers() {
  std::vector<LayerSpec> layers = {
      MakeLayer("TransformerEncoderLayer", {8, 2}, {{"name", "transformer.h"}}, {}, "net.lua:3"),
      MakeLayer("LayerNorm", {8}, {{"name", "transformer.ln_f"}}, {}, "net.lua:4"),
      MakeLayer("Embedding", {9, 8}, {{"name", "wte"}}, {}, "net.lua:5"),
      MakeLayer("Linear", {8, 9}, {}, {}, "net.lua:6")};
  for (const size_t use : {2, 3}) layers[use].tied_key = "e";
  return layers;
}

OptimizerSpec OneGroup(const std::string& parameters, const std::string& dims = "") {
  OptimizerSpec spec;
  spec.groups.push_back({{}, parameters, Value::MakeMap(), dims});
  return spec;
}

/// The names, as saves have them, of the parameters that the groups take.
std::vector<std::string> TakenBy(const OptimizerSpec& spec) {
  const std::vector<LayerSpec> layers = NamedLayers();
  std::vector<std::string> taken;
  for (int i = 0; i < 4; ++i) {
    const LayerSpec& layer = layers[static_cast<size_t>(i)];
    for (const ParameterSpec& parameter : ParametersOf(layer)) {
      if (FindParameterGroup(spec, layers, i, parameter.name) < 0) continue;
      taken.push_back(LayerPath(layer, i) + "." + parameter.name);
    }
  }
  return taken;
}

TEST(FindParameterGroup, TheExpressionIsFoundInTheNameThatSavesHave) {
  EXPECT_THAT(TakenBy(OneGroup("ln_f.weight")), ElementsAre("transformer.ln_f.weight"));
  EXPECT_THAT(TakenBy(OneGroup("H\\.norm1")),
              ElementsAre("transformer.h.norm1.weight", "transformer.h.norm1.bias"));
  EXPECT_THAT(TakenBy(OneGroup("^weight")), IsEmpty()) << "the layer's name comes first";
}

TEST(FindParameterGroup, ATiedParameterHasTheNameOfItsFirstUse) {
  EXPECT_THAT(TakenBy(OneGroup("^wte")), ElementsAre("wte.weight", "3.weight"));
  EXPECT_THAT(TakenBy(OneGroup("^3")), ElementsAre("3.bias"));
}

TEST(FindParameterGroup, DimsAreASelectorToo) {
  const auto dims = [](const Value& value, const std::string& parameters) {
    return TakenBy(OneGroup(parameters, ParseDims(value)));
  };
  const auto vectors = ElementsAre("transformer.ln_f.weight", "transformer.ln_f.bias", "3.bias");
  for (const Value& one : {Value("<2"), Value(1), Value("1"), Value(" == 1"), Value("<=1")}) {
    EXPECT_THAT(dims(one, "ln_f|^3|wte"), vectors) << one.Describe();
  }
  for (const Value& two : {Value(">1"), Value(2), Value(">=2")}) {
    EXPECT_THAT(dims(two, "ln_f|^3|wte"), ElementsAre("wte.weight", "3.weight")) << two.Describe();
  }
  EXPECT_THAT(dims(7, ""), IsEmpty());
}

TEST(ParseDims, RefusesWhatIsNoComparison) {
  for (const Value& wrong : {Value("two"), Value("<"), Value("=2"), Value(""), Value(1.5),
                             Value(-1), Value(true), Value("<2x")}) {
    EXPECT_THAT(ErrorOf([&] { ParseDims(wrong); }), HasSubstr("dims expects a number of dims"))
        << wrong.Describe();
  }
  EXPECT_EQ(ParseDims(Value()), "");
}

TEST(CheckParameterGroups, AGroupThatHoldsForNothingIsRefused) {
  const std::vector<LayerSpec> layers = NamedLayers();
  const auto error = [&](const OptimizerSpec& spec) {
    return ErrorOf([&] { CheckParameterGroups(spec, layers); });
  };
  EXPECT_EQ(error(OneGroup("bias")), "");
  EXPECT_THAT(
      error(OneGroup("transformer.ln_g.weight")),
      AllOf(HasSubstr("group 1 (parameters \"transformer.ln_g.weight\") holds for no "
                      "parameter; did you mean \"transformer.ln_f.weight\"?"),
            HasSubstr("transformer.h.self_attn.in_proj_weight (24, 8)"), HasSubstr("and 5 more")));
  OptimizerSpec second = OneGroup("bias");
  second.groups.push_back({{{1}}, "", Value::MakeMap(), ">1"});
  EXPECT_THAT(error(second), HasSubstr("group 2 (layers 1; dims >1) holds for no parameter"));
}

TEST(FindParameterGroup, WithoutGroupsNoneHolds) {
  const Job job = Build();
  EXPECT_EQ(FindParameterGroup(job.optimizer, job.layers, 1, "weight"), -1);
}

TEST(GroupOptions, OverrideTheOptimizers) {
  const OptimizerSpec spec = Grouped().optimizer;
  const Value own = GroupOptions(spec, -1);
  EXPECT_EQ(own, spec.options);
  const Value first = GroupOptions(spec, 0), second = GroupOptions(spec, 1);
  EXPECT_EQ(first["lr"], Value(1.0));
  EXPECT_EQ(first["momentum"], Value(0.9));
  EXPECT_EQ(second["weight_decay"], Value(0.0));
  EXPECT_EQ(second["lr"], Value(0.1));
  EXPECT_EQ(first.as_map().size(), own.as_map().size()) << "every option is there";
}

}  // namespace
}  // namespace strata
