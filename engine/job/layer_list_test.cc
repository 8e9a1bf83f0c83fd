// Compares the flattening of nested lists, and the choice of optimizer groups, with plain loops.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/base/text.h"
#include "engine/job/parameter_groups.h"
#include "engine/job/testing_job.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The layers and cuts of a job after BuildJob().
struct LayerList {
  std::vector<LayerSpec> layers;
  std::vector<int> cuts;  // without 0 and the number of layers
};

LayerList FlattenLayers(RawLayer layers) {
  RawJob raw = SmallJob();
  raw.layers = std::move(layers);
  Job job = BuildJob(raw, {});
  LayerList list = {std::move(job.layers), job.partition.bounds};
  if (!list.cuts.empty()) list.cuts = {list.cuts.begin() + 1, list.cuts.end() - 1};
  return list;
}

/// A layer that can be recognised by its number.
RawLayer Numbered(int number) { return Item(Layer("Linear", {1, number + 1})); }

std::vector<int> Numbers(const LayerList& list) {
  std::vector<int> numbers;
  for (const LayerSpec& layer : list.layers) {
    numbers.push_back(static_cast<int>(layer.args["out_features"].as_int()) - 1);
  }
  return numbers;
}

/// The same items, with random runs of them in nested lists and empty lists in between.
std::vector<RawLayer> Nested(const std::vector<RawLayer>& items, int depth) {
  std::vector<RawLayer> nested;
  for (size_t at = 0; at < items.size();) {
    if (*rc::gen::inRange(0, 6) == 0) nested.push_back(Items({}));
    const auto run = *rc::gen::inRange<size_t>(1, items.size() - at + 1);
    const std::vector<RawLayer> piece(items.begin() + static_cast<std::ptrdiff_t>(at),
                                      items.begin() + static_cast<std::ptrdiff_t>(at + run));
    if (depth > 0 && *rc::gen::arbitrary<bool>()) {
      nested.push_back(Items(Nested(piece, depth - 1)));
    } else {
      nested.insert(nested.end(), piece.begin(), piece.end());
    }
    at += run;
  }
  return nested;
}

RC_GTEST_PROP(FlattenLayers, ListsWithinListsDoNotMatter, ()) {
  const int count = *rc::gen::inRange(1, 12);
  std::vector<RawLayer> items;
  std::vector<int> numbers, cuts;
  for (int i = 0; i < count; ++i) {
    if (i > 0 && *rc::gen::inRange(0, 3) == 0) {
      items.push_back(Cut());
      cuts.push_back(i);
    }
    items.push_back(Numbered(i));
    numbers.push_back(i);
  }
  const LayerList list = FlattenLayers(Items(Nested(items, 3)));
  RC_ASSERT(Numbers(list) == numbers);
  RC_ASSERT(list.cuts == cuts);
}

TEST(FlattenLayers, ASequentialWithinTheListStaysOneLayer) {
  const LayerSpec block = Holding("Sequential", {Layer("ReLU"), Layer("Tanh")});
  EXPECT_EQ(FlattenLayers(Item(block)).layers.size(), 2u) << "alone it is the list";
  EXPECT_EQ(FlattenLayers(Items({Item(block)})).layers.size(), 1u);
  EXPECT_EQ(FlattenLayers(Items({Item(block), Item(block)})).layers.size(), 2u);
  EXPECT_EQ(FlattenLayers(Item(Holding("Residual", {Layer("ReLU")}))).layers.size(), 1u);
  EXPECT_THAT(FlattenLayers(Item(Layer("ReLU"))).cuts, IsEmpty());
}

TEST(FlattenLayers, AFunctionMayStandAtSeveralPlaces) {
  LayerSpec function;
  function.type = "function";
  function.scripted = true;
  function.name = "act";
  const auto names = [](const std::vector<RawLayer>& items) {
    std::vector<std::string> names;
    for (const LayerSpec& layer : FlattenLayers(Items(items)).layers) names.push_back(layer.name);
    return names;
  };
  const RawLayer act = Item(function), relu = Item(Layer("ReLU", {}, {{"name", "act"}}));
  EXPECT_THAT(names({act}), testing::ElementsAre("act"));
  EXPECT_THAT(names({act, Item(Layer("Tanh")), act}), testing::ElementsAre("", "", ""));
  EXPECT_THAT(names({act, relu}), testing::ElementsAre("", "act"));
}

TEST(FlattenLayers, NamesAreComparedAcrossLists) {
  const auto named = [](const char* name) { return Item(Layer("ReLU", {}, {{"name", name}})); };
  EXPECT_EQ(FlattenLayers(Items({named("a"), Items({named("b")}), named("A")})).layers.size(), 3u);
  EXPECT_EQ(ErrorOf([&] {
              FlattenLayers(Items({named("a"), Items({Items({named("a")})})}));
            }),
            "layers 0 and 1 have the same name \"a\"");
  for (const char* index : {"0", "7", "007", "123456789012345678901234567890"}) {
    EXPECT_NE(ErrorOf([&] { FlattenLayers(Items({named(index)})); }), "") << index;
  }
  for (const char* name : {"0a", "-1", "1.5", " 1"}) {
    EXPECT_EQ(ErrorOf([&] { FlattenLayers(Items({named(name)})); }), "") << name;
  }
}

TEST(FlattenLayers, ALossIsFoundAtAnyDepth) {
  const RawLayer loss = Item(MakeLayer("MSELoss", {}, {}, {}, "net.lua:5"));
  EXPECT_EQ(ErrorOf([&] {
              FlattenLayers(Items({Numbered(0), Items({Items({loss})})}));
            }),
            "net.lua:5: layer 1 MSELoss() is a loss; give it as loss = nn.MSELoss{...}");
}

// ---- groups of the optimizer ----

struct Group {
  std::vector<int> layers;  // empty = all
  std::string parameters;   // a plain piece of the name; "" = all
  int dims = 0;             // 0 = any
};

RC_GTEST_PROP(ParameterGroups, TheFirstThatTakesAParameterHolds, ()) {
  std::vector<LayerSpec> layers(4, Layer("Linear", {2, 2}));
  layers[1].name = "norm";
  const auto count = *rc::gen::inRange(0, 5);
  std::vector<Group> groups;
  OptimizerSpec spec;
  for (int i = 0; i < count; ++i) {
    groups.push_back({*rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 4)),
                      *rc::gen::element<std::string>("", "weight", "bias", "norm", "BIAS", "2.w"),
                      *rc::gen::inRange(0, 3)});
    Value::List items(groups.back().layers.begin(), groups.back().layers.end());
    const std::string dims = groups.back().dims > 0 ? Str("==", groups.back().dims) : "";
    spec.groups.push_back({{std::move(items)}, groups.back().parameters, Value::MakeMap(), dims});
  }
  for (int layer = 0; layer < 4; ++layer) {
    for (const std::string parameter : {"weight", "bias"}) {
      const std::string name = (layer == 1 ? "norm" : std::to_string(layer)) + "." + parameter;
      const auto takes = [&](const Group& group) {
        const bool selected =
            group.layers.empty() || std::count(group.layers.begin(), group.layers.end(), layer) > 0;
        const std::string piece = group.parameters == "BIAS" ? "bias" : group.parameters;
        const bool has_dims = group.dims == 0 || group.dims == (parameter == "weight" ? 2 : 1);
        return selected && has_dims && name.find(piece) != std::string::npos;
      };
      const auto first = std::find_if(groups.begin(), groups.end(), takes);
      const int expected = first == groups.end() ? -1 : static_cast<int>(first - groups.begin());
      RC_ASSERT(FindParameterGroup(spec, layers, layer, parameter) == expected);
    }
  }
}

TEST(ParameterGroups, AreCheckedBeforeAnyIsAsked) {
  const std::vector<LayerSpec> layers(4, Layer("Linear", {2, 2}));
  const auto error = [&](Value::List items, const std::string& parameters) {
    OptimizerSpec spec;
    spec.groups.push_back({{{0}}, "", Value::MakeMap()});
    spec.groups.push_back({{std::move(items)}, parameters, Value::MakeMap()});
    return ErrorOf([&] { CheckParameterGroups(spec, layers); });
  };
  EXPECT_EQ(error({3}, "t|b"), "");
  EXPECT_EQ(error({}, ""), "");
  EXPECT_EQ(error({4}, ""), "optimizer.groups: there is no layer 4; the layers are 0 to 3");
  EXPECT_EQ(error({"type:conv"}, ""), "optimizer.groups: no layer's type matches \"conv\"");
  EXPECT_EQ(error({0}, "(a"),
            "optimizer.groups: \"(a\" is not a regular expression (ECMAScript without references "
            "back, at most 1000 characters)");
  EXPECT_THAT(error({0}, std::string(1001, 'a')), testing::HasSubstr("at most 1000"));
  EXPECT_THAT(error({0}, std::string(1000, 'a')), testing::HasSubstr("holds for no parameter"));
}

}  // namespace
}  // namespace strata
