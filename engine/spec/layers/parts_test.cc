#include "engine/spec/layers/parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/base/testing.h"

namespace strata {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

LayerSpec Make(const char* type, Value::List arguments = {}, Value::Map named = {}) {
  return MakeLayer(type, arguments, named, {}, "net.lua:3");
}

/// Two layers without parts around one of each type that has some.
std::vector<LayerSpec> Layers() {
  return {Make("Linear", {6, 8}), Make("TransformerEncoderLayer", {8, 2}),
          Make("TransformerDecoderLayer", {8, 2}, {{"name", "dec"}}), Make("Linear", {8, 5})};
}

bool All(int) { return true; }

std::vector<std::string> Paths(const std::vector<LayerSpec>& layers) {
  std::vector<std::string> paths;
  for (size_t i = 0; i < layers.size(); ++i) {
    paths.push_back(PartPath(layers[i], static_cast<int>(i)));
  }
  return paths;
}

TEST(Parts, StandInTheListWithTheNamesOfTheWhole) {
  const std::vector<LayerSpec> parts = InParts(Layers(), All);
  EXPECT_THAT(Paths(parts), ElementsAre("0", "1.attention", "1.feed_forward", "dec.attention",
                                        "dec.feed_forward", "3"));
  EXPECT_EQ(LayerPath(parts[2], 2), "1");
  EXPECT_EQ(LayerPath(parts[5], 5), "3");
  EXPECT_EQ(parts[3].ToString(), "TransformerDecoderLayer.attention(8, 2)");
}

TEST(Parts, HaveTheWholesParametersOnceEach) {
  for (const LayerSpec& whole : {Layers()[1], Layers()[2]}) {
    std::set<std::string> names, expected;
    size_t count = 0;
    for (const LayerSpec& part : InParts({whole}, All)) {
      for (const ParameterSpec& parameter : ParametersOf(part)) {
        names.insert(parameter.name);
        ++count;
      }
    }
    for (const ParameterSpec& parameter : ParametersOf(whole)) expected.insert(parameter.name);
    EXPECT_EQ(names, expected);
    EXPECT_EQ(count, expected.size());
  }
}

TEST(Parts, BecomeTheListThatTheyWere) {
  std::vector<LayerSpec> layers = Layers();
  layers[1].frozen = true;
  const auto texts = [](const std::vector<LayerSpec>& list) {
    std::vector<std::string> each;
    for (const LayerSpec& layer : list) each.push_back(layer.ToValue().ToJson());
    return each;
  };
  const std::vector<LayerSpec> parts = InParts(layers, All);
  EXPECT_TRUE(parts[2].frozen);
  EXPECT_EQ(texts(InWhole(parts)), texts(layers));
  EXPECT_EQ(texts(InWhole(layers)), texts(layers));
  EXPECT_EQ(texts(InWhole(InParts(layers, [](int i) { return i == 2; }))), texts(layers));
}

TEST(Parts, LayersStayWholeWhoseParametersBelongTogether) {
  const auto stays = [](const LayerSpec& layer) { return InParts({layer}, All).size() == 1; };
  EXPECT_FALSE(stays(Layers()[1]));
  LayerSpec tied = Layers()[1];
  tied.tied_key = "both";
  EXPECT_TRUE(stays(tied));
  LayerSpec with_init = Layers()[1];
  with_init.init.id = 3;
  EXPECT_TRUE(stays(with_init));
  EXPECT_TRUE(stays(Make("TransformerEncoderLayer", {8, 2}, {{"dtype", "float64"}})));
}

TEST(Parts, AreNoLayersForScripts) {
  for (const LayerType& type : PartTypes()) {
    EXPECT_THAT(LayerTypeNames(), Not(Contains(type.name)));
    ASSERT_NE(FindLayerType(type.name), nullptr) << type.name;
  }
}

TEST(Parts, CountLayersAsTheScriptDoes) {
  const std::vector<LayerSpec> parts = InParts(Layers(), All);
  std::vector<int> numbers;
  for (int place = 0; place <= 6; ++place) numbers.push_back(LayerNumber(parts, place));
  EXPECT_THAT(numbers, ElementsAre(0, 1, 1, 2, 2, 3, 4));
}

TEST(CutNames, AreTheNumbersOfLayersAndParts) {
  const CutNames names(InParts(Layers(), All));
  EXPECT_EQ(names.Text({0, 1, 2, 3, 4, 5, 6}), "0,1,1.1,2,2.1,3,4");
  EXPECT_EQ(names.Numbers({0, 2, 6}).ToJson(), "[0,1.1,4]");
  EXPECT_EQ(names.layers(), 4);
  EXPECT_THAT(names.Positions(names.Numbers({0, 2, 4, 6}), "cuts"), ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(ConfigErrorOf([&] {
                names.Positions(Value::List{0, 3.1, 4}, "recut");
              }),
              HasSubstr("recut: there is no place 3.1 to cut; layer 3 cannot be cut inside; others "
                        "can, at 1.1, 2.1"));
  EXPECT_THAT(ConfigErrorOf([&] {
                names.Positions(Value::List{0, 2.7, 4}, "recut");
              }),
              HasSubstr("recut: there is no place 2.7 to cut; layer 2 can be cut at 2.1"));
  for (const double outside : {5.0, 4.1, -1.0, 1e300, std::nan("")}) {
    EXPECT_THAT(ConfigErrorOf([&] { names.Positions(Value::List{outside}, "recut"); }),
                HasSubstr("the list has 4 layers"))
        << outside;
  }
  EXPECT_THAT(ConfigErrorOf([&] {
                CutNames(Layers()).Positions(Value::List{0, 1.1, 4}, "recut");
              }),
              HasSubstr("layer 1 cannot be cut inside, nor can another of this job"));
  EXPECT_THAT(ConfigErrorOf([&] {
                names.Positions(Value::List{0, "x", 4}, "recut");
              }),
              HasSubstr("recut: expected cuts such as 4 or 4.1, got the string \"x\""));
}

TEST(CutNames, SayWhatLiesBetween) {
  const CutNames names(InParts(Layers(), All));
  EXPECT_EQ(names.Range(0, 1), "0");
  EXPECT_EQ(names.Range(0, 2), "0 to 1.0");
  EXPECT_EQ(names.Range(1, 2), "1.0");
  EXPECT_EQ(names.Range(1, 3), "1");
  EXPECT_EQ(names.Range(2, 3), "1.1");
  EXPECT_EQ(names.Range(2, 4), "1.1 to 2.0");
  EXPECT_EQ(names.Range(2, 6), "1.1 to 3");
  EXPECT_EQ(names.Range(3, 6), "2 to 3");
  EXPECT_EQ(names.Range(2, 4, ".."), "1.1..2.0");
}

TEST(Parts, TakeAndGiveWhatTheWholeDoes) {
  std::vector<LayerSpec> layers = Layers();
  const TensorSpecs input = {{{4, 3, 6}}};
  EXPECT_EQ(InferLayers(InParts(layers, All), input, nullptr).back(),
            InferLayers(layers, input, nullptr).back());
  layers[0] = Make("Linear", {6, 7});
  EXPECT_THAT(
      ConfigErrorOf([&] { InferLayers(InParts(layers, All), input, nullptr); }),
      HasSubstr(
          "layer 1 TransformerEncoderLayer.attention(8, 2) cannot take the output of layer 0"));
}

}  // namespace
}  // namespace strata
