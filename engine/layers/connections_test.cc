#include "engine/layers/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>

#include "engine/layers/layer_types.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LayerSpec Make(const std::string& type, Value::List positional = {}, Value::Map named = {}) {
  return MakeLayer(type, positional, named, {}, "net.lua:3");
}
LayerSpec Skip(const char* key) { return Make("skip", {key}); }
LayerSpec Join(const char* key, Value::Map named = {}) {
  return Make("join", {key}, std::move(named));
}
LayerSpec Linear(int in, int out) { return Make("Linear", {in, out}); }

TensorSpecs Floats(std::vector<int64_t> shape) { return {{std::move(shape), DType::kFloat32}}; }

std::string ErrorOfFinding(const std::vector<LayerSpec>& layers) {
  return ErrorOf([&] { FindConnections(layers); });
}

TEST(FindConnectionsTest, GivesBothEndsInOrderOfTheFirst) {
  EXPECT_THAT(FindConnections({Linear(4, 4)}), IsEmpty());
  const auto connections =
      FindConnections({Skip("a"), Linear(4, 4), Skip("b"), Linear(4, 4), Join("a"), Join("b")});
  ASSERT_EQ(connections.size(), 2u);
  EXPECT_EQ(connections[0].key, "a");
  EXPECT_EQ(connections[0].from, 0);
  EXPECT_EQ(connections[0].to, 4);
  EXPECT_EQ(connections[1].key, "b");
  EXPECT_EQ(connections[1].from, 2);
  EXPECT_EQ(connections[1].to, 5);
}

TEST(FindConnectionsTest, RefusesOneEndAlone) {
  EXPECT_THAT(ErrorOfFinding({Skip("low"), Linear(4, 4)}),
              AllOf(HasSubstr("net.lua:3: layer 0 skip(key=\"low\")"),
                    HasSubstr("no later strata.join{\"low\"} takes it")));
  EXPECT_THAT(ErrorOfFinding({Skip("low"), Linear(4, 4), Join("lou")}),
              AllOf(HasSubstr("layer 2 join(key=\"lou\")"),
                    HasSubstr("no strata.skip{\"lou\"} stands before it"), HasSubstr("\"low\"")));
  EXPECT_THAT(ErrorOfFinding({Join("a"), Skip("a")}), HasSubstr("layer 0"));
}

TEST(FindConnectionsTest, RefusesAKeyThatIsUsedTwice) {
  EXPECT_THAT(ErrorOfFinding({Skip("a"), Skip("a"), Join("a")}),
              AllOf(HasSubstr("layer 1"), HasSubstr("layer 0 keeps a \"a\" already")));
  EXPECT_THAT(ErrorOfFinding({Skip("a"), Join("a"), Join("a")}),
              AllOf(HasSubstr("layer 2"), HasSubstr("layer 1 takes \"a\" already")));
}

TEST(FindConnectionsTest, RefusesThemInsideALayer) {
  const LayerSpec inner = MakeLayer("Sequential", {}, {}, {Skip("a")}, "net.lua:4");
  const LayerSpec outer = MakeLayer("Residual", {}, {}, {inner}, "net.lua:5");
  EXPECT_THAT(ErrorOfFinding({outer}),
              AllOf(HasSubstr("net.lua:5: layer 0"), HasSubstr("not inside a layer")));
}

// A value crosses exactly the cuts between its two ends.
TEST(ConnectionTest, CrossesTheCutsBetweenItsEnds) {
  const Connection connection = {"a", 2, 5};
  std::vector<int> crossed;
  for (int cut = 0; cut <= 8; ++cut) {
    if (Crosses(connection, cut)) crossed.push_back(cut);
  }
  EXPECT_THAT(crossed, ElementsAre(3, 4, 5));
}

TEST(BoundarySpecsTest, AddWhatPassesByInOrder) {
  const std::vector<LayerSpec> layers = {Skip("a"), Linear(4, 8), Skip("b"), Linear(8, 4),
                                         Join("a"), Linear(4, 8), Join("b"), Linear(8, 2)};
  const TensorSpecs input = Floats({3, 4});
  const auto outputs = InferLayers(layers, input, nullptr);
  const TensorSpec four = Floats({3, 4})[0], eight = Floats({3, 8})[0], two = Floats({3, 2})[0];
  EXPECT_THAT(BoundarySpecs(layers, {0, 1, 3, 4, 5, 6, 8}, input, outputs),
              ElementsAre(TensorSpecs{four}, TensorSpecs{four, four},
                          TensorSpecs{eight, four, eight}, TensorSpecs{four, four, eight},
                          TensorSpecs{four, eight}, TensorSpecs{eight, eight}, TensorSpecs{two}));
}

TEST(JoinTest, AddsPutsBehindOrPassesOn) {
  const auto last = [](Value::Map how, int out) {
    return InferLayers({Skip("a"), Linear(4, out), Join("a", std::move(how))}, Floats({3, 4}),
                       nullptr)
        .back();
  };
  EXPECT_EQ(last({}, 4), Floats({3, 4}));
  EXPECT_EQ(last({{"how", "cat"}}, 6), Floats({3, 10}));
  EXPECT_EQ(last({{"how", "cat"}, {"dim", 0}}, 4), Floats({6, 4}));
  EXPECT_EQ(last({{"how", "cat"}, {"dim", -1}}, 1), Floats({3, 5}));
  EXPECT_EQ(last({{"how", "pass"}}, 6),
            (TensorSpecs{{{3, 6}, DType::kFloat32}, {{3, 4}, DType::kFloat32}}));
}

TEST(JoinTest, RefusesWhatDoesNotFit) {
  const auto error = [](Value::Map how, int out) {
    return ErrorOf([&] {
      InferLayers({Skip("a"), Linear(4, out), Join("a", std::move(how))}, Floats({3, 4}), nullptr);
    });
  };
  EXPECT_THAT(error({}, 5),
              AllOf(HasSubstr("layer 2 join(key=\"a\")"), HasSubstr("layer 1 Linear(4, 5)"),
                    HasSubstr("adds the kept float32 (3, 4), got float32 (3, 5)")));
  EXPECT_THAT(error({{"how", "cat"}, {"dim", 0}}, 5), HasSubstr("in dim 0, got float32 (3, 5)"));
  EXPECT_THAT(error({{"how", "cat"}, {"dim", 2}}, 4), HasSubstr("dim 2 (dim)"));
  EXPECT_THAT(ErrorOf([] {
                Join("a", {{"how", "sum"}});
              }),
              AllOf(HasSubstr("how"), HasSubstr("add")));
}

TEST(DocumentsTest, CarryPlacesPastAllLayers) {
  const TensorSpec tokens = {{2, 9}, DType::kInt64};
  const std::vector<LayerSpec> layers = {Make("documents"), Make("Embedding", {7, 4}),
                                         Linear(4, 7)};
  for (const TensorSpecs& input : {TensorSpecs{tokens, tokens}, TensorSpecs{tokens}}) {
    const auto outputs = InferLayers(layers, input, nullptr);
    EXPECT_EQ(outputs.back(), Floats({2, 9, 7}));
    TensorSpecs between = outputs[1];
    if (input.size() > 1) between.push_back(tokens);
    EXPECT_EQ(BoundarySpecs(layers, {0, 2, 3}, input, outputs),
              (std::vector<TensorSpecs>{input, between, outputs[2]}));
  }
  const auto error = [&](const TensorSpecs& input) {
    return ErrorOf([&] { InferLayers(layers, input, nullptr); });
  };
  for (const TensorSpecs& wrong :
       {TensorSpecs{tokens, {{2, 8}, DType::kInt64}}, TensorSpecs{tokens, tokens, tokens},
        Floats({2, 9}), TensorSpecs{{{9}, DType::kInt64}}}) {
    EXPECT_THAT(error(wrong),
                AllOf(HasSubstr("layer 0 documents()"), HasSubstr("int64 tokens (N, L)")));
  }
  const LayerSpec inside = MakeLayer("Sequential", {}, {}, {Make("documents")}, "net.lua:4");
  EXPECT_THAT(
      ErrorOf([&] { FindConnections({inside}); }),
      HasSubstr("strata.documents{} stands in the job's list of layers, not inside a layer"));
}

TEST(ConnectionTypesTest, StandOutsideNn) {
  for (const std::string& name : LayerTypeNames()) {
    EXPECT_NE(name, "skip");
    EXPECT_NE(name, "join");
    EXPECT_NE(name, "documents");
  }
  EXPECT_THAT(LayerHelp(*FindLayerType("skip")), HasSubstr("strata.skip{key}: keeps its input"));
}

/// Layers of one width, one for each letter: "a" is a skip, "A" its join, "." a Linear.
std::vector<LayerSpec> Chain(const std::string& pattern) {
  std::vector<LayerSpec> layers;
  for (const char c : pattern) {
    const std::string key(1, static_cast<char>(std::tolower(c)));
    if (c == '.') {
      layers.push_back(Linear(4, 4));
    } else {
      layers.push_back(c == key[0] ? Skip(key.c_str()) : Join(key.c_str()));
    }
  }
  return layers;
}

TEST(FindConnectionsTest, TakesEveryWayToNest) {
  const std::pair<const char*, std::vector<int>> cases[] = {
      {"a.A", {0, 2}},           {"aA", {0, 1}},
      {"a.b.B.A", {0, 6, 2, 4}}, {"a.b.A.B", {0, 4, 2, 6}},
      {"abBA", {0, 3, 1, 2}},    {"abAB", {0, 2, 1, 3}},
      {"a.Ab.B", {0, 2, 3, 5}},  {"..b.a.BA", {2, 6, 4, 7}},
  };
  for (const auto& [pattern, ends] : cases) {
    std::vector<int> found;
    for (const Connection& connection : FindConnections(Chain(pattern))) {
      found.insert(found.end(), {connection.from, connection.to});
    }
    EXPECT_EQ(found, ends) << pattern;
  }
}

TEST(FindConnectionsTest, RefusesInATable) {
  const std::pair<const char*, const char*> cases[] = {
      {"A", "layer 0 join(key=\"a\"): no strata.skip{\"a\"} stands before it"},
      {"A.a", "layer 0 join(key=\"a\"): no strata.skip{\"a\"} stands before it"},
      {"b.A", "stands before it; it is one of b"},
      {"a.b.B", "layer 0 skip(key=\"a\"): no later strata.join{\"a\"} takes it"},
      {"bB.a", "layer 3 skip(key=\"a\"): no later strata.join{\"a\"} takes it"},
      {"a.Aa.A", "layer 3 skip(key=\"a\"): layer 0 keeps a \"a\" already; a key is used once"},
      {"a.A.A", "layer 2 takes \"a\" already; for two joins write two skips"},
  };
  for (const auto& [pattern, error] : cases) {
    EXPECT_THAT(ErrorOfFinding(Chain(pattern)), HasSubstr(error)) << pattern;
  }
}

// A stage's input has the chain's tensor, and one tensor for each connection that crosses the cut.
TEST(BoundarySpecsTest, EveryCutHasAsManyTensorsAsCross) {
  for (const char* pattern : {"....", "a.A.", "a.b.B.A", "a.b.A.B", "abc.A.B.C", "a.Ab.B"}) {
    const std::vector<LayerSpec> layers = Chain(pattern);
    const int n = static_cast<int>(layers.size());
    const TensorSpecs input = Floats({3, 4});
    const auto outputs = InferLayers(layers, input, nullptr);
    const std::vector<Connection> connections = FindConnections(layers);
    for (int cut = 1; cut < n; ++cut) {
      const auto crossing =
          std::count_if(connections.begin(), connections.end(),
                        [&](const Connection& connection) { return Crosses(connection, cut); });
      const auto boundaries = BoundarySpecs(layers, {0, cut, n}, input, outputs);
      ASSERT_EQ(boundaries.size(), 3u);
      EXPECT_EQ(boundaries[0], input);
      EXPECT_EQ(boundaries[1], TensorSpecs(1 + static_cast<size_t>(crossing), input[0]))
          << pattern << " at " << cut;
      EXPECT_EQ(boundaries[2], input);
    }
  }
}

}  // namespace
}  // namespace strata
