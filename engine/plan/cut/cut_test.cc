#include "engine/plan/cut/cut.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "engine/base/testing.h"
#include "engine/job/job_fields.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing_script.h"

namespace strata::partition {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

PartitionSpec Named(const std::string& method) {
  PartitionSpec partition;
  partition.method = method;
  return partition;
}

PartitionSpec Written(std::vector<int> bounds) {
  PartitionSpec partition = Named("cuts");
  partition.bounds = std::move(bounds);
  return partition;
}

PartitionSpec Function() {
  PartitionSpec partition = Named("function");
  partition.function = {.id = 7, .where = "net.lua:3", .digest = "ff"};
  return partition;
}

/// A list of layers with their numbers of parameters.
struct List {
  std::vector<LayerSpec> layers;
  std::vector<int64_t> parameters;

  void Add(const std::string& type, int64_t count = 0) {
    layers.emplace_back().type = type;
    parameters.push_back(count);
  }
  Bounds Cut(const PartitionSpec& partition, int stages, Script* script = nullptr) const {
    return partition::Cut(partition, layers, parameters, stages, script);
  }
  Bounds Cut(const std::string& method, int stages) const { return Cut(Named(method), stages); }
  Bounds CutAt(std::vector<int> bounds, int stages) const {
    return Cut(Written(std::move(bounds)), stages);
  }
};

/// The 22 layers of DeepSpeed's AlexNet.
List AlexNet() {
  List list;
  for (int64_t count : {23296, 307392, 663936, 884992, 590080}) {
    list.Add("Conv2d", count);
    list.Add("ReLU");
    if (count < 600000) list.Add("MaxPool2d");
  }
  for (const char* type : {"AdaptiveAvgPool2d", "Flatten", "Dropout"}) list.Add(type);
  list.Add("Linear", 37752832);
  list.Add("ReLU");
  list.Add("Dropout");
  list.Add("Linear", 16781312);
  list.Add("ReLU");
  list.Add("Linear", 40970);
  return list;
}

/// An embedding, some blocks, and a head.
List Transformer(int blocks) {
  List list;
  list.Add("Embedding", 5'120'000);
  for (int i = 0; i < blocks; ++i) list.Add("TransformerDecoderLayer", 4'204'032);
  list.Add("LayerNorm", 1024);
  list.Add("Linear", 5'130'000);
  return list;
}

// ---- Methods

TEST(Cut, Uniform) { EXPECT_THAT(AlexNet().Cut("uniform", 4), ElementsAre(0, 6, 12, 17, 22)); }

TEST(Cut, Parameters) {
  EXPECT_THAT(AlexNet().Cut("parameters", 1), ElementsAre(0, 22));
  EXPECT_THAT(AlexNet().Cut("parameters", 2), ElementsAre(0, 19, 22));
  EXPECT_THAT(AlexNet().Cut("parameters", 4), ElementsAre(0, 8, 16, 19, 22));
}

TEST(Cut, ParametersIsTheDefault) {
  EXPECT_EQ(AlexNet().Cut(PartitionSpec{}, 2), AlexNet().Cut("parameters", 2));
}

TEST(Cut, ParametersOfAListWithoutAny) {
  List list;
  for (int i = 0; i < 4; ++i) list.Add("ReLU");
  EXPECT_THAT(list.Cut("parameters", 3), ElementsAre(0, 2, 3, 4));
}

TEST(Cut, TypeCountsTheLayersFound) {
  EXPECT_THAT(Transformer(8).Cut("type:TransformerDecoderLayer", 4), ElementsAre(0, 3, 5, 7, 11));
  EXPECT_THAT(Transformer(6).Cut("type:TransformerDecoderLayer", 4), ElementsAre(0, 3, 5, 6, 9));
}

TEST(Cut, TypeIsFoundAnywhereIgnoringCase) {
  EXPECT_EQ(Transformer(8).Cut("type:decoder", 4), Transformer(8).Cut("type:DECODERLAYER$", 4));
  EXPECT_EQ(Transformer(8).Cut("type:^Trans.*r$", 2), Transformer(8).Cut("type:decoder", 2));
  EXPECT_THAT(AlexNet().Cut("type:conv|linear", 8), AlexNet().Cut("type:(Conv2d|Linear)", 8));
}

TEST(Cut, TypeKeepsColonsAndCapitalsOfTheExpression) {
  List list;
  for (const char* type : {"a:b", "a1", "a:b", "a2"}) list.Add(type);
  EXPECT_THAT(list.Cut("type:a:b", 2), ElementsAre(0, 2, 4));
  EXPECT_THAT(list.Cut("type:a\\D", 2), list.Cut("type:a:b", 2)) << "\\D is not \\d";
}

TEST(Cut, TypeFindsNamedFunctions) {
  List list = Transformer(1);
  list.Add("function");
  list.layers.back().scripted = true;
  list.layers.back().name = "swish";
  EXPECT_THAT(list.Cut("type:Swish", 2), ElementsAre(0, 4, 5));
}

TEST(Cut, TypeWithFewerMatchesThanStages) {
  // Two layers match and there are three stages. One stage has no match, but every stage has a
  // layer.
  EXPECT_THAT(Transformer(2).Cut("type:decoder", 3), ElementsAre(0, 2, 4, 5));
}

TEST(Cut, WrittenCuts) {
  EXPECT_THAT(AlexNet().CutAt({0, 19, 22}, 2), ElementsAre(0, 19, 22));
  EXPECT_THAT(AlexNet().CutAt({0, 22}, 1), ElementsAre(0, 22));
}

TEST(Cut, AFunctionSeesTheLayersAndStages) {
  AnsweringScript script(Value::IntList({0, 1, 4}));
  List list = Transformer(1);
  list.layers[0].name = "embed";
  EXPECT_THAT(list.Cut(Function(), 2, &script), ElementsAre(0, 1, 4));
  EXPECT_EQ(script.called.id, 7);
  ASSERT_EQ(script.asked.size(), 2u);
  EXPECT_EQ(script.asked[0].as_list()[0].ToLua(),
            "{index=0, type=\"Embedding\", name=\"embed\", parameters=5120000}");
  EXPECT_EQ(script.asked[0].as_list()[2].ToLua(),
            "{index=2, type=\"LayerNorm\", name=\"2\", parameters=1024}");
  EXPECT_EQ(script.asked[0].as_list().size(), 4u);
  EXPECT_EQ(script.asked[1], Value(2));
}

TEST(Cut, AFunctionMayReturnWholeDoubles) {
  AnsweringScript script(Value::List{0.0, 1.0, 4.0});
  EXPECT_THAT(Transformer(1).Cut(Function(), 2, &script), ElementsAre(0, 1, 4));
}

// ---- Refusals

TEST(CutRefuses, MoreStagesThanLayers) {
  for (const char* method : {"uniform", "parameters", "type:decoder"}) {
    EXPECT_THAT(ConfigErrorOf([&] { Transformer(1).Cut(method, 5); }),
                AllOf(HasSubstr("5 stages"), HasSubstr("the list has 4")));
  }
  EXPECT_THAT(ConfigErrorOf([] { List().Cut("uniform", 1); }), HasSubstr("the list has 0"));
}

TEST(CutRefuses, UnknownMethodsByTheNearestName) {
  const auto error = [](const std::string& method) {
    return ConfigErrorOf([&] { CheckMethod(Named(method)); });
  };
  EXPECT_THAT(error("parametres"), AllOf(StartsWith("partition: there is no method \"parametres\""),
                                         HasSubstr("did you mean \"parameters\"?")));
  EXPECT_THAT(error("Uniform"), HasSubstr("did you mean \"uniform\"?"));
  EXPECT_THAT(error("tpye:Linear"), HasSubstr("did you mean \"type:REGEX\"?"));
  EXPECT_THAT(error("best"), AllOf(HasSubstr("one of auto, uniform, parameters, time, memory, "),
                                   HasSubstr("cuts such as {0, 19, 22}")));
  EXPECT_THAT(error(""), HasSubstr("no method \"\""));
}

TEST(CutRefuses, MethodsWithoutWhatBelongsToThem) {
  for (const char* method : {"type", "type:", "cuts", "function", "uniform:3", "cuts:3"}) {
    EXPECT_THAT(ConfigErrorOf([&] { CheckMethod(Named(method)); }), HasSubstr("there is no method"))
        << method;
  }
}

TEST(CutAccepts, MethodsThatExist) {
  for (const char* method : {"uniform", "parameters", "type:a:b"}) {
    CheckMethod(Named(method));
    EXPECT_EQ(MethodGoesBy(Named(method)), GoesBy::kLayers) << method;
  }
  for (const char* method : {"time", "profile"}) {
    EXPECT_EQ(MethodGoesBy(Named(method)), GoesBy::kTime) << method;
  }
  EXPECT_EQ(MethodGoesBy(Named("memory")), GoesBy::kMemory);
  CheckMethod(Written({0, 1}));
  CheckMethod(Function());
}

TEST(MethodNames, AreInTheHelpOfTheKey) {
  const Field* key = FindField(JobFields(), "partition");
  ASSERT_NE(key, nullptr);
  for (const std::string& name : MethodNames()) EXPECT_THAT(key->help, HasSubstr(name));
}

TEST(CutRefuses, ExpressionsThatFindNothing) {
  EXPECT_THAT(ConfigErrorOf([] { Transformer(1).Cut("type:Conv", 2); }),
              AllOf(HasSubstr("\"type:Conv\""), HasSubstr("no layer's type matches"),
                    HasSubstr("Embedding, LayerNorm, Linear, TransformerDecoderLayer")));
  EXPECT_THAT(ConfigErrorOf([] { Transformer(1).Cut("type:Linaer", 2); }),
              HasSubstr("did you mean \"Linear\"?"));
}

TEST(CutRefuses, BrokenExpressions) {
  for (const char* method : {"type:(", "type:[a", "type:*", "type:a{2,1}", "type:\\"}) {
    EXPECT_THAT(ConfigErrorOf([&] { Transformer(1).Cut(method, 2); }),
                AllOf(StartsWith("partition"), HasSubstr("regular expression"),
                      Not(HasSubstr("regex_error"))))
        << method;
  }
}

TEST(CutRefuses, WrittenCutsThatAreNoCut) {
  const auto error = [](std::vector<int> bounds, int stages) {
    return ConfigErrorOf([&] { AlexNet().CutAt(std::move(bounds), stages); });
  };
  EXPECT_THAT(error({0, 19, 22}, 3), AllOf(HasSubstr("partition: expected the bounds of 3 stages"),
                                           HasSubstr("got {0, 19, 22}"), HasSubstr("4 bounds")));
  EXPECT_THAT(error({0, 5, 19, 22}, 2), HasSubstr("these are 4"));
  EXPECT_THAT(error({1, 19, 22}, 2), HasSubstr("the first is 1, not 0"));
  EXPECT_THAT(error({0, 19, 21}, 2), HasSubstr("the last is 21, not 22"));
  EXPECT_THAT(error({0, 19, 30}, 2), HasSubstr("the last is 30, not 22"));
  EXPECT_THAT(error({0, 19, 7, 22}, 3), HasSubstr("7 follows 19"));
  EXPECT_THAT(error({0, 7, 7, 22}, 3), HasSubstr("stage 1 would be empty"));
  EXPECT_THAT(error({0, 30, 22}, 2), HasSubstr("22 follows 30"));
  EXPECT_THAT(error({0, -1, 22}, 2), HasSubstr("-1 follows 0"));
}

TEST(CutRefuses, WrongResultsOfAFunction) {
  const auto error = [](Value result) {
    AnsweringScript script(std::move(result));
    return ConfigErrorOf([&] { AlexNet().Cut(Function(), 2, &script); });
  };
  const auto where = StartsWith("net.lua:3: the partition function's result: expected the bounds");
  EXPECT_THAT(error(Value()), AllOf(where, HasSubstr("got nil: that is no list")));
  EXPECT_THAT(error(19), AllOf(where, HasSubstr("got 19: that is no list")));
  EXPECT_THAT(error(Value::List{0, "19", 22}),
              AllOf(where, HasSubstr("not all are whole numbers")));
  EXPECT_THAT(error(Value::List{0, 19.5, 22}), AllOf(where, HasSubstr("not all are whole")));
  EXPECT_THAT(error(Value::List{}), AllOf(where, HasSubstr("these are 0")));
  EXPECT_THAT(error(Value::List{0, 19, 1e12}), AllOf(where, HasSubstr("not 22")));
  EXPECT_THAT(error(Value::List{0, 1e12, 22}), AllOf(where, HasSubstr("22 follows 1000000000000")));
}

// ---- Laws

RC_GTEST_PROP(CutLaws, EveryMethodCoversTheListWithoutEmptyStages, ()) {
  List list;
  const auto counts = *rc::gen::nonEmpty(
      rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(0, 1000)));
  for (int64_t count : counts) list.Add(count % 2 == 0 ? "Linear" : "ReLU", count);
  const auto method = *rc::gen::element<std::string>("uniform", "parameters", "type:Linear|ReLU");
  const int stages = *rc::gen::inRange(1, static_cast<int>(counts.size()) + 1);
  const Bounds bounds = list.Cut(method, stages);
  RC_ASSERT(list.CutAt(bounds, stages) == bounds);  // CutAt() checks them
}

}  // namespace
}  // namespace strata::partition
