#include "engine/job/ties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/layers/layer_types.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

LayerSpec Make(const std::string& type, Value::List positional, const std::string& key = "",
               std::vector<std::string> weights = {"weight"}) {
  LayerSpec layer = MakeLayer(type, positional, {}, {}, "net.lua:3");
  layer.tied_key = key;
  layer.tied_weights = std::move(weights);
  return layer;
}

std::string TiesError(const std::vector<LayerSpec>& layers) {
  return ErrorOf([&] { CheckTies(layers); });
}

TEST(FindTies, GivesKeysInOrderWithAscendingUses) {
  const auto ties =
      FindTies({Make("Embedding", {9, 4}, "z"), Make("Linear", {4, 4}), Make("Linear", {4, 4}, "a"),
                Make("Linear", {4, 9}, "z"), Make("Linear", {4, 4}, "a")});
  ASSERT_EQ(ties.size(), 2u);
  EXPECT_EQ(ties[0].key, "a");
  EXPECT_THAT(ties[0].layers, ElementsAre(2, 4));
  EXPECT_THAT(ties[1].layers, ElementsAre(0, 3));
}

TEST(CheckTies, TakesWhatFits) {
  EXPECT_EQ(TiesError({Make("Embedding", {9, 4}, "e"), Make("Linear", {4, 9}, "e")}), "");
  EXPECT_EQ(TiesError({Make("Linear", {4, 4}, "e", {"weight", "bias"}),
                       Make("Linear", {4, 4}, "e", {"weight", "bias"})}),
            "");
}

TEST(CheckTies, NamesWhatDoesNotFit) {
  EXPECT_THAT(TiesError({Make("Embedding", {9, 4}, "e"), Make("Linear", {9, 4}, "e")}),
              AllOf(HasSubstr("net.lua:3"), HasSubstr("strata.tied{\"e\"}"),
                    HasSubstr("layer 1 Linear(9, 4)'s weight has the shape (4, 9)"),
                    HasSubstr("layer 0 Embedding(9, 4)'s weight has (9, 4)")));
  EXPECT_THAT(TiesError({Make("Linear", {9, 4}, "e", {"wieght"})}),
              HasSubstr("has no parameter \"wieght\"; did you mean \"weight\""));
  EXPECT_THAT(
      TiesError({Make("Linear", {4, 4}, "e"), Make("Linear", {4, 4}, "e", {"weight", "bias"})}),
      HasSubstr("shares 2 tensors"));
  LayerSpec typed = Make("Linear", {4, 4}, "e");
  typed.args.Set("dtype", "float32");
  EXPECT_THAT(TiesError({Make("Linear", {4, 4}, "e"), typed}),
              HasSubstr("share a tensor, so that dtype must be the same for both"));
}

TEST(CheckTies, ATieInsideALayerSaysHowElse) {
  const LayerSpec outer =
      MakeLayer("Sequential", {}, {}, {Make("Linear", {4, 4}, "e")}, "net.lua:9");
  EXPECT_THAT(TiesError({outer}), AllOf(HasSubstr("inside Sequential"), HasSubstr("\"0.weight\"")));
  LayerSpec whole = MakeLayer("Sequential", {}, {}, {Make("Linear", {4, 4})}, "net.lua:9");
  whole.tied_key = "e";
  whole.tied_weights = {"0.weight"};
  EXPECT_EQ(TiesError({whole, Make("Linear", {4, 4}, "e")}), "");
}

TEST(CheckWholeTies, AllUsesOrNone) {
  const std::vector<LayerSpec> layers = {Make("Linear", {4, 4}, "e"), Make("Linear", {4, 4}),
                                         Make("Linear", {4, 4}, "e")};
  const auto error = [&](const std::vector<int>& chosen) {
    return ErrorOf([&] { CheckWholeTies(layers, chosen, "weights.except"); });
  };
  using Choices = std::vector<std::vector<int>>;
  for (const auto& chosen : Choices{{}, {1}, {0, 2}}) EXPECT_EQ(error(chosen), "");
  for (const auto& chosen : Choices{{0}, {1, 2}}) {
    EXPECT_THAT(error(chosen),
                HasSubstr("weights.except names only one of layer 0 Linear(4, 4) and "
                          "layer 2 Linear(4, 4), which share a tensor"));
  }
}

TEST(CheckTieOptions, AllUsesAreTreatedAlike) {
  Job job;
  job.layers = {Make("Embedding", {9, 4}, "e"), Make("Linear", {4, 9}, "e")};
  EXPECT_EQ(ErrorOf([&] { CheckTieOptions(job); }), "");
  job.layers[1].frozen = true;
  EXPECT_THAT(ErrorOf([&] { CheckTieOptions(job); }), HasSubstr("freeze names only one"));
  job.layers[1].frozen = false;
  job.layers[1].frozen_parameters = {"bias"};
  EXPECT_EQ(ErrorOf([&] { CheckTieOptions(job); }), "") << "it is not shared";
  job.layers[1].frozen_parameters = {"weight"};
  EXPECT_THAT(ErrorOf([&] { CheckTieOptions(job); }), HasSubstr("freeze names only one"));
  for (LayerSpec& layer : job.layers) layer.frozen_parameters = {"weight"};
  EXPECT_EQ(ErrorOf([&] { CheckTieOptions(job); }), "");
  for (LayerSpec& layer : job.layers) layer.tied_weights = {"weight", "bias"};
  EXPECT_THAT(ErrorOf([&] { CheckTieOptions(job); }), HasSubstr("freeze names only some of"));
  for (LayerSpec& layer : job.layers) {
    layer.tied_weights = {"weight"};
    layer.frozen_parameters = {};
  }
  job.optimizer.groups.push_back({.layers = {{Value(0)}}, .parameters = "", .options = {}});
  EXPECT_THAT(ErrorOf([&] { CheckTieOptions(job); }), HasSubstr("optimizer's groups"));
}

TEST(CheckTies, OfSeveralUsesTheWrongOneIsNamed) {
  const auto linear = [](int in, int out) { return Make("Linear", {in, out}, "e"); };
  struct Wrong {
    std::vector<LayerSpec> layers;
    const char* error;
  };
  const Wrong cases[] = {
      {{linear(4, 4), linear(4, 4), linear(4, 5)}, "layer 2 Linear(4, 5)'s weight has the shape"},
      {{linear(4, 5), linear(4, 4), linear(4, 5)}, "layer 1 Linear(4, 4)'s weight has the shape"},
      {{Make("ReLU", {}, "e")}, "layer 0 ReLU() has no parameter \"weight\""},
      {{Make("ReLU", {}), linear(4, 4), Make("BatchNorm2d", {4}, "e", {"running_mean"})},
       "layer 2 BatchNorm2d(4) has no parameter \"running_mean\""},
      {{Make("Linear", {4, 4}, "e", {"weight", "bias"}),
        Make("Linear", {4, 4}, "e", {"bias", "weight"})},
       "layer 1 Linear(4, 4)'s bias has the shape (4,), layer 0 Linear(4, 4)'s weight has (4, 4)"},
      {{linear(4, 4), Make("Linear", {4, 4}, "e", {})},
       "layer 1 Linear(4, 4) shares 0 tensors, layer 0 Linear(4, 4) shares 1"},
  };
  for (const auto& [layers, error] : cases) {
    EXPECT_THAT(TiesError(layers), AllOf(HasSubstr("strata.tied{\"e\"}: "), HasSubstr(error)));
  }
}

TEST(CheckTies, KeysDoNotMeet) {
  EXPECT_EQ(TiesError({Make("Linear", {4, 4}, "a"), Make("Linear", {4, 5}, "b"),
                       Make("Linear", {4, 4}, "a"), Make("Linear", {4, 5}, "b")}),
            "");
}

TEST(CheckTieOptions, GroupsThatTreatAllUsesAlike) {
  Job job;
  job.layers = {Make("Embedding", {9, 4}, "e"), Make("Linear", {4, 4}),
                Make("Linear", {4, 9}, "e")};
  const std::pair<ParameterGroup, bool> cases[] = {
      {{.layers = {{Value(1)}}, .parameters = "", .options = {}}, true},
      {{.layers = {{Value(0), Value(2)}}, .parameters = "", .options = {}}, true},
      {{.layers = {}, .parameters = "weight", .options = {}}, true},
      {{.layers = {{Value(2)}}, .parameters = "bias", .options = {}}, true},
      {{.layers = {{Value(2)}}, .parameters = "weight", .options = {}}, false},
      {{.layers = {{"type:Embedding"}}, .parameters = "", .options = {}}, false},
  };
  for (const auto& [group, fits] : cases) {
    job.optimizer.groups = {group};
    EXPECT_EQ(ErrorOf([&] { CheckTieOptions(job); }).empty(), fits) << group.parameters;
  }
}

}  // namespace
}  // namespace strata
