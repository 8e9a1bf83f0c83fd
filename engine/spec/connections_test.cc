#include "engine/spec/connections.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/spec/layers.h"
#include "engine/spec/testing.h"

namespace strata {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

LayerSpec Make(const std::string& type, Value::List positional, Value::Map named = {}) {
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

// Every cut of a list is either between the two ends, or not.
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

TEST(ConnectionTypesTest, StandOutsideNn) {
  for (const std::string& name : LayerTypeNames()) {
    EXPECT_NE(name, "skip");
    EXPECT_NE(name, "join");
  }
  EXPECT_THAT(LayerHelp(*FindLayerType("skip")), HasSubstr("strata.skip{key}: keeps its input"));
}

}  // namespace
}  // namespace strata
