#include "engine/spec/ties.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/spec/layers.h"
#include "engine/spec/testing.h"

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

TEST(CheckTieOptions, AllUsesAreTreatedAlike) {
  Job job;
  job.layers = {Make("Embedding", {9, 4}, "e"), Make("Linear", {4, 9}, "e")};
  EXPECT_EQ(ErrorOf([&] { CheckTieOptions(job); }), "");
  job.layers[1].frozen = true;
  EXPECT_THAT(ErrorOf([&] { CheckTieOptions(job); }), HasSubstr("freeze names only one"));
  job.layers[1].frozen = false;
  job.optimizer.groups.push_back({.layers = {{Value(0)}}, .parameters = "", .options = {}});
  EXPECT_THAT(ErrorOf([&] { CheckTieOptions(job); }), HasSubstr("optimizer's groups"));
}

}  // namespace
}  // namespace strata
