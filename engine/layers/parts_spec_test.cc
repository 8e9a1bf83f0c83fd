#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

LayerSpec Make(const char* type, Value::List arguments = {}, Value::Map named = {}) {
  return MakeLayer(type, arguments, named, {}, "net.lua:3");
}

LayerSpec Holding(const char* type, std::vector<LayerSpec> layers, Value::Map named = {}) {
  return MakeLayer(type, {}, named, std::move(layers), "net.lua:3");
}

LayerSpec Square() { return Make("Linear", {4, 4}); }

/// A list with one layer of each type that has parts, between two layers without parts.
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

/// Both kinds of containers. One of them, and some of the layers inside, have names.
std::vector<LayerSpec> Containers() {
  return {Square(),
          Holding("Residual", {Make("LayerNorm", {4}), Make("Linear", {4, 9}, {{"name", "up"}}),
                               Make("ReLU"), Make("Linear", {9, 4}), Make("Dropout")}),
          Holding("Sequential",
                  {Square(), Holding("Residual", {Square(), Square()}), Make("BatchNorm1d", {4})},
                  {{"name", "seq"}})};
}

TEST(Parts, OfContainersAreTheirLayers) {
  const std::vector<LayerSpec> parts = InParts(Containers(), All);
  EXPECT_THAT(Paths(parts),
              ElementsAre("0", "1.0", "1.1", "1.2", "1.3", "1.4", "seq.0", "seq.1", "seq.2"));
  EXPECT_EQ(parts[2].type, "Residual.1");
  EXPECT_EQ(PartNumber("Residual.3"), 3);
  for (const char* whole : {"Residual", "Linear.3", "Residual.x", "Residual.10", ".1", "1", ""}) {
    EXPECT_EQ(PartNumber(whole), -1) << whole;
  }
  const auto names_of = [](const LayerSpec& spec) {
    std::vector<std::string> names;
    for (const ParameterSpec& parameter : ParametersOf(spec)) names.push_back(parameter.name);
    return names;
  };
  EXPECT_THAT(names_of(parts[2]), ElementsAre("up.weight", "up.bias"));
  EXPECT_THAT(names_of(parts[4]), ElementsAre("3.weight", "3.bias"));
  EXPECT_THAT(names_of(parts[7]), ElementsAre("1.0.weight", "1.0.bias", "1.1.weight", "1.1.bias"));
  const CutNames names(parts);
  EXPECT_EQ(names.Text({1, 2, 5, 6, 8, 9}), "1,1.1,1.4,2,2.2,3");
  EXPECT_EQ(names.Range(2, 4), "1.1 to 1.2");
  EXPECT_THAT(ConfigErrorOf([&] { names.Positions(Value::List{2.7}, "recut"); }),
              HasSubstr("there is no place 2.7 to cut; layer 2 can be cut at 2.1, 2.2"));
}

std::vector<std::string> RangesOf(const char* type, std::vector<LayerSpec> layers) {
  std::vector<std::string> texts;
  for (const ChildRange& range : PartRanges(Holding(type, std::move(layers)))) {
    texts.push_back(Str(range.begin, "-", range.end));
  }
  return texts;
}

TEST(PartRanges, EndWhereNumbersMayBeDrawn) {
  EXPECT_THAT(RangesOf("Residual", {Square(), Make("ReLU"), Square()}),
              ElementsAre("0-1", "1-2", "2-3"));
  EXPECT_THAT(RangesOf("Residual", {Square(), Make("Dropout"), Square(), Square()}),
              ElementsAre("0-1", "1-4"));
  EXPECT_THAT(RangesOf("Sequential", {Make("Dropout"), Square()}), ElementsAre("0-2"));
  LayerSpec tied = Square(), scripted;
  tied.tied_key = "both";
  scripted.type = "function";
  scripted.scripted = true;
  const LayerSpec attention = Make("MultiheadAttention", {4, 2}, {{"dropout", 0.1}});
  const LayerSpec nested = Holding("Sequential", {Square(), Make("AlphaDropout")});
  for (const LayerSpec& last : {tied, scripted, attention, nested}) {
    EXPECT_THAT(RangesOf("Sequential", {Square(), last, Square()}), ElementsAre("0-1", "1-3"))
        << last.type;
  }
  const LayerSpec still = Make("MultiheadAttention", {4, 2});
  const LayerSpec inside = Holding("Sequential", {Square(), Make("Dropout", {0})});
  for (const LayerSpec& layer : {still, inside}) {
    EXPECT_THAT(RangesOf("Sequential", {layer, Square()}), ElementsAre("0-1", "1-2")) << layer.type;
  }
}

TEST(PartRanges, OfAResidualEndWhereStatesAreGiven) {
  const std::vector<LayerSpec> layers = {Square(), Make("GRU", {4, 4}), Make("GRU", {4, 4})};
  EXPECT_THAT(RangesOf("Residual", layers), ElementsAre("0-1", "1-3"));
  EXPECT_THAT(RangesOf("Sequential", layers), ElementsAre("0-1", "1-2", "2-3"));
  EXPECT_THAT(RangesOf("Residual", {Square(), Holding("Sequential", layers), Square()}),
              ElementsAre("0-1", "1-3"));
}

/// There are at most ten parts, because the number 4.10 would be read as 4.1.
TEST(PartRanges, AreTenAtMost) {
  EXPECT_EQ(RangesOf("Sequential", std::vector<LayerSpec>(10, Square())).size(), 10u);
  EXPECT_THAT(
      RangesOf("Sequential", std::vector<LayerSpec>(13, Square())),
      ElementsAre("0-1", "1-2", "2-3", "3-5", "5-6", "6-7", "7-9", "9-10", "10-11", "11-13"));
  std::vector<LayerSpec> drawing(25, Square());
  drawing[19] = Make("Dropout");
  EXPECT_EQ(RangesOf("Sequential", drawing).back(), "18-25");
}

TEST(Parts, HaveTheWholesParametersOnceEach) {
  for (const LayerSpec& whole : {Layers()[1], Layers()[2], Containers()[1], Containers()[2],
                                 Holding("Sequential", std::vector<LayerSpec>(13, Square()))}) {
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
  EXPECT_EQ(texts(InWhole(InParts(Containers(), All))), texts(Containers()));
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
  EXPECT_FALSE(stays(Containers()[1]));
  LayerSpec container = Containers()[1];
  container.tied_key = "both";
  EXPECT_TRUE(stays(container));
  EXPECT_TRUE(stays(Holding("Residual", {Square()})));
  EXPECT_TRUE(stays(Holding("Residual", {Make("Dropout"), Square()})));
}

TEST(Parts, KeepOfATokenWhatTheirLayersKeep) {
  const LayerSpec attention =
      Make("MultiheadAttention", {4, 2}, {{"batch_first", true}, {"causal", true}});
  const LayerSpec whole = Holding("Residual", {Square(), attention, Make("BatchNorm1d", {4})});
  std::vector<int64_t> kept;
  std::vector<bool> is_token_wise;
  for (const LayerSpec& part : InParts({whole}, All)) {
    kept.push_back(KeptTokenBytes(part, 1, DType::kFloat32));
    is_token_wise.push_back(IsTokenWise(part));
  }
  EXPECT_THAT(kept, ElementsAre(0, KeptTokenBytes(whole, 1, DType::kFloat32), 0));
  EXPECT_THAT(is_token_wise, ElementsAre(true, true, false));
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

/// Every part of a Residual passes the Residual's input on, and the last part adds it.
TEST(Parts, OfAResidualPassItsInputOn) {
  const TensorSpecs input = {{{2, 4}}};
  const std::vector<LayerSpec> layers = {Containers()[1]};
  const std::vector<TensorSpecs> outputs = InferLayers(InParts(layers, All), input, nullptr);
  std::vector<std::string> texts;
  for (const TensorSpecs& output : outputs) texts.push_back(ToString(output));
  EXPECT_THAT(texts,
              ElementsAre("float32 (2, 4) and float32 (2, 4)", "float32 (2, 4) and float32 (2, 9)",
                          "float32 (2, 4) and float32 (2, 9)", "float32 (2, 4) and float32 (2, 4)",
                          "float32 (2, 4)"));
  const auto misfit = [&](std::vector<LayerSpec> inside) {
    return ConfigErrorOf([&] {
      InferLayers(InParts({Holding("Residual", std::move(inside))}, All), input, nullptr);
    });
  };
  EXPECT_THAT(misfit({Square(), Make("Linear", {5, 4})}),
              HasSubstr("layer 0 Residual.1(Linear(4, 4), Linear(5, 4)): its layer 1 Linear(5, 4) "
                        "cannot take the output of its layer 0 Linear(4, 4)"));
  EXPECT_THAT(misfit({Make("Linear", {5, 4}), Square()}),
              HasSubstr("cannot take the input: its layer 0 Linear(5, 4) expects"));
  EXPECT_THAT(misfit({Square(), Make("Linear", {4, 5})}),
              HasSubstr("expects its body to keep float32 (2, 4), got float32 (2, 5)"));
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
