#include "engine/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/job/data_source.h"
#include "engine/layers/parts.h"
#include "engine/layers/testing_script.h"
#include "engine/plan/plan_testing.h"
#include "engine/plan/plan_text.h"
#include "engine/plan/recompute.h"

namespace strata {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

/// A functional layer, as a script would declare it.
LayerSpec Function() {
  LayerSpec spec;
  spec.type = "function";
  spec.scripted = true;
  spec.forward = {1, "net.lua:9", "d"};
  return spec;
}

/// A script whose functional layers flatten their input and whose data has rows of 5.
struct FakeScript : AnsweringScript {
  TensorSpecs InferShapes(const LayerSpec&, const TensorSpecs& inputs) override {
    const TensorSpec& x = inputs[0];
    return {{{x.shape[0], x.elements() / x.shape[0]}, x.dtype}};
  }
  FirstBatch InferData(const FunctionRef& function, int64_t) override {
    return function.id == kTestData ? test_data : data;
  }
  void TryLoss(const LayerSpec&, const TensorSpecs& output, const TensorSpecs& target) override {
    if (target != output) throw ConfigError("net.lua:4: the shapes differ");
  }
  static constexpr int kTestData = 7;
  FirstBatch data = {{{{3, 5}, DType::kFloat32}}, {}, {}, {}};
  FirstBatch test_data;
};

/// The 22 layers of DeepSpeed's pipeline example; layer 14 is a function.
std::vector<LayerSpec> AlexNet() {
  const LayerSpec relu = Make("ReLU", {}, {{"inplace", true}});
  const LayerSpec pool = Make("MaxPool2d", {3}, {{"stride", 2}});
  return {Make("Conv2d", {3, 64, 11, 4, 2}),
          relu,
          pool,
          Make("Conv2d", {64, 192, 5}, {{"padding", 2}}),
          relu,
          pool,
          Make("Conv2d", {192, 384, 3}, {{"padding", 1}}),
          relu,
          Make("Conv2d", {384, 256, 3}, {{"padding", 1}}),
          relu,
          Make("Conv2d", {256, 256, 3}, {{"padding", 1}}),
          relu,
          pool,
          Make("AdaptiveAvgPool2d", {6}),
          Function(),
          Make("Dropout"),
          Make("Linear", {9216, 4096}),
          relu,
          Make("Dropout"),
          Make("Linear", {4096, 4096}),
          relu,
          Make("Linear", {4096, 10})};
}

Job AlexNetJob(int pipe) {
  Job job;
  job.layers = AlexNet();
  job.input = TensorSpec{{3, 224, 224}, DType::kFloat32};
  job.parallel.pipe = pipe;
  job.batch = {0, 4, 8};
  return job;
}

/// A job of a chain of Linear(8, 8).
Job LinearJob(int layers, int pipe) {
  Job job;
  for (int i = 0; i < layers; ++i) job.layers.push_back(Make("Linear", {8, 8}));
  job.input = TensorSpec{{8}, DType::kFloat32};
  job.parallel.pipe = pipe;
  job.batch = {12, 0, 3};
  return job;
}

std::string ErrorOf(const Job& job, const PlanOptions& options = {}, Script* script = nullptr) {
  return ConfigErrorOf([&] { MakePlan(job, options, script); });
}

TEST(MakePlan, CutsAlexNetAsDeepSpeedsExample) {
  FakeScript script;
  const Plan plan = MakePlan(AlexNetJob(2), {}, &script);
  std::vector<int64_t> parameters;
  for (const LayerPlan& layer : plan.layers) parameters.push_back(layer.parameters);
  EXPECT_THAT(parameters, ElementsAre(23296, 0, 0, 307392, 0, 0, 663936, 0, 884992, 0, 590080, 0, 0,
                                      0, 0, 0, 37752832, 0, 0, 16781312, 0, 40970));
  EXPECT_THAT(plan.bounds, ElementsAre(0, 19, 22));
  EXPECT_EQ(plan.parameters, 57044810);
  EXPECT_EQ(plan.layers[13].output[0].ToString(), "float32 (8, 256, 6, 6)");
  EXPECT_EQ(plan.layers[21].output[0].ToString(), "float32 (8, 10)");
  EXPECT_EQ(plan.layers[18].stage, 0);
  EXPECT_EQ(plan.layers[19].stage, 1);
  ASSERT_EQ(plan.pipe(), 2);
  EXPECT_EQ(plan.stages[1].input[0].ToString(), "float32 (8, 4096)");
  EXPECT_EQ(plan.stages[0].parameters + plan.stages[1].parameters, plan.parameters);
  EXPECT_EQ(plan.batch.size, 32);
}

TEST(MakePlan, PutsSeveralStagesOnARank) {
  Job job = LinearJob(12, 2);
  job.stages_per_rank = 3;
  job.schedule.name = "interleaved_1f1b";
  const Plan loop = MakePlan(job, {}, nullptr);
  EXPECT_EQ(loop.pipe(), 2);
  EXPECT_EQ(loop.topology.world_size(), 2);
  EXPECT_THAT(loop.bounds, ElementsAre(0, 2, 4, 6, 8, 10, 12));
  EXPECT_THAT(loop.stage_ranks(), ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_EQ(loop.layers[9].stage, 4);
  job.stages_per_rank = 2;
  EXPECT_THAT(MakePlan(job, {.stage_ranks = {1, 1, 0}}, nullptr).stage_ranks(),
              ElementsAre(1, 1, 0));
  job.stages_per_rank = 7;
  EXPECT_THAT(ErrorOf(job), HasSubstr("14 stages need at least as many layers; the list has 12"));
  job.stages_per_rank = 2000000000;
  EXPECT_THAT(ErrorOf(job), HasSubstr("4,000,000,000 stages need at least as many layers"));
}

TEST(MakePlan, NumbersRecomputedSegments) {
  using Method = RecomputeSpec::Method;
  const auto segments = [](const RecomputeSpec& recompute, Script* script = nullptr) {
    Job job = LinearJob(7, 2);  // the cut is 0 4 7 or 0 3 7
    job.partition = {"cuts", {0, 4, 7}, {}};
    job.recompute = recompute;
    const Plan plan = MakePlan(job, {}, script);
    std::vector<int> numbers;
    for (const LayerPlan& layer : plan.layers) numbers.push_back(layer.segment);
    return std::pair(numbers, RecomputedStages(plan));
  };
  using Pair = std::pair<std::vector<int>, std::vector<int>>;
  EXPECT_EQ(segments({}), Pair({-1, -1, -1, -1, -1, -1, -1}, {}));
  EXPECT_EQ(segments({.method = Method::kStages}), Pair({0, 0, 0, 0, 1, 1, 1}, {0, 1}));
  EXPECT_EQ(segments({.method = Method::kEvery, .every = 3}), Pair({0, 0, 0, 1, 2, 2, 2}, {0, 1}));
  EXPECT_EQ(segments({.method = Method::kLayers, .layers = {{5, 4}}}),
            Pair({-1, -1, -1, -1, 0, 1, -1}, {1}));
  FakeScript script;
  script.answer = true;
  const RecomputeSpec by_function = {.method = Method::kFunction,
                                     .function = {1, "net.lua:4", "d"}};
  EXPECT_EQ(segments(by_function, &script), Pair({0, 1, 2, 3, 4, 5, 6}, {0, 1}));
  EXPECT_EQ(script.asked[0]["stage"].as_int(), 1);
  script.answer = 3;
  EXPECT_THROW(segments(by_function, &script), ConfigError);
}

TEST(MakePlan, DerivesDegreesFromTheWorld) {
  EXPECT_EQ(MakePlan(LinearJob(4, 0), {}, nullptr).pipe(), 1);
  EXPECT_EQ(MakePlan(LinearJob(4, 2), {.world_size = 2}, nullptr).topology.world_size(), 2);
  EXPECT_EQ(MakePlan(LinearJob(4, 2), {.world_size = 6}, nullptr).topology.Size("data"), 3);
  EXPECT_THAT(ErrorOf(LinearJob(4, 2), {.world_size = 3}),
              AllOf(HasSubstr("2 * 1"), HasSubstr("3 ranks")));
  Job job = LinearJob(4, 2);
  job.parallel.data = 1;
  EXPECT_THAT(ErrorOf(job, {.world_size = 4}), AllOf(HasSubstr("= 2"), HasSubstr("4 ranks")));
}

TEST(MakePlan, RefusesDegreesThatNoWorldHas) {
  Job job = LinearJob(4, 65536);
  for (const Parallel& degrees : {Parallel{65536, 0, 65536}, Parallel{65536, 65536, 1},
                                  Parallel{INT32_MAX, INT32_MAX, INT32_MAX}}) {
    job.parallel = degrees;
    for (const int world_size : {0, 8}) {
      EXPECT_THAT(ErrorOf(job, {.world_size = world_size}), HasSubstr("at most 1,048,576 ranks"))
          << degrees.data << " in " << world_size;
    }
  }
}

TEST(MakePlan, TheModelAxisSharesLayersThatSaySo) {
  Job job = LinearJob(4, 2);
  job.parallel.model = 2;
  EXPECT_THAT(ErrorOf(job), HasSubstr("parallel.model = 2, but there is no layer"));
  job.layers[1] = Make("Linear", {8, 8}, {{"split", "column"}});
  const Plan plan = MakePlan(job, {}, nullptr);
  EXPECT_EQ(plan.topology.world_size(), 4);
  EXPECT_EQ(plan.parameters, 4 * (8 * 8 + 8));  // each tied parameter counts once
  job.parallel.model = 3;
  EXPECT_THAT(ErrorOf(job), HasSubstr("layer 1 Linear(8, 8, split=\"column\"): out_features 8 is "
                                      "not divisible by model = 3"));
}

TEST(MakePlan, NoCutPartsWhatMustStayTogether) {
  Job job = LinearJob(4, 2);
  const auto parts = Value::Map{{"gather_output", false}};
  job.layers[1] = Make("ColumnParallelLinear", {8, 8}, parts);
  job.layers[2] = Make("RowParallelLinear", {8, 8});
  job.parallel.model = 2;
  EXPECT_THAT(ErrorOf(job), AllOf(HasSubstr("Linear(8, 8, gather_output=false, split=\"column\")"),
                                  HasSubstr("no cut")));
  job.partition.method = "cuts";
  job.partition.bounds = {0, 3, 4};
  EXPECT_EQ(ErrorOf(job), "no error");
}

TEST(MakePlan, TheModelAxisSharesSequencesThatDivide) {
  Job job = LinearJob(1, 1);
  job.parallel.model = 2;
  job.input = TensorSpec{{5, 8}, DType::kFloat32};
  job.layers = {Make("Linear", {8, 8}), Make("TransformerEncoderLayer", {8, 2},
                                             {{"batch_first", true}, {"split", "sequence"}})};
  EXPECT_THAT(ErrorOf(job), AllOf(HasSubstr("layer 1 "), HasSubstr("of length 5")));
  job.input = TensorSpec{{6, 8}, DType::kFloat32};
  EXPECT_EQ(MakePlan(job, {}, nullptr).topology.world_size(), 2);
}

TEST(MakePlan, RefusesMoreStagesThanLayers) {
  EXPECT_THAT(ErrorOf(LinearJob(3, 4)), AllOf(HasSubstr("4 stages"), HasSubstr("has 3")));
  EXPECT_THAT(ErrorOf(LinearJob(0, 1)), HasSubstr("at least one layer"));
}

TEST(MakePlan, NamesBothLayersWhereAShapeDoesNotFit) {
  Job job = LinearJob(2, 1);
  job.layers.push_back(Make("Linear", {9, 4}));
  EXPECT_THAT(ErrorOf(job), AllOf(HasSubstr("net.lua:3"), HasSubstr("layer 2 Linear(9, 4)"),
                                  HasSubstr("layer 1 Linear(8, 8)"), HasSubstr("(3, 8)")));
}

TEST(MakePlan, FrozenLayersCountApart) {
  Job job = LinearJob(2, 1);
  job.layers[0].frozen = true;
  const Plan plan = MakePlan(job, {}, nullptr);
  EXPECT_EQ(plan.layers[0].parameters, 0);
  EXPECT_EQ(plan.layers[0].frozen, 72);
  EXPECT_EQ(plan.parameters, 72);
}

TEST(MakePlan, AsksTheScriptForCutsAndForTheShapeOfItsData) {
  FakeScript script;
  script.answer = Value::IntList({0, 1, 4});
  Job job = LinearJob(0, 2);
  for (int i = 0; i < 4; ++i) job.layers.push_back(Make("Linear", {5, 5}));
  job.input.reset();
  job.train_data = {"function", {}, {2, "net.lua:20", "e"}, "net.lua:20"};
  job.partition = {"function", {}, {3, "net.lua:30", "f"}};
  const Plan plan = MakePlan(job, {}, &script);
  EXPECT_THAT(plan.bounds, ElementsAre(0, 1, 4));
  EXPECT_EQ(plan.layers[0].output[0].ToString(), "float32 (3, 5)") << "the micro-batch's rows";
  ASSERT_EQ(script.asked.size(), 2u);
  EXPECT_EQ(script.asked[1].as_int(), 2);
}

TEST(MakePlan, WithoutInputAndDataThereAreNoShapes) {
  Job job = LinearJob(2, 1);
  job.input.reset();
  EXPECT_TRUE(MakePlan(job, {}, nullptr).layers[0].output.empty());
}

TEST(MakePlan, ADataFunctionMayGiveSeveralTensors) {
  FakeScript script;
  script.data.input.push_back({{3, 3}, DType::kBool});
  Job job = LinearJob(0, 1);
  job.layers = {Function()};
  job.input.reset();
  job.train_data = {"function", {}, {2, "net.lua:20", "e"}, "net.lua:20"};
  EXPECT_EQ(MakePlan(job, {}, &script).stages[0].input, script.data.input);
  const auto error_of = [&](TensorSpecs data) {
    script.data.input = std::move(data);
    return ErrorOf(job, {}, &script);
  };
  EXPECT_THAT(error_of({{{7, 5}, DType::kFloat32}}),
              AllOf(HasSubstr("net.lua:20: "), HasSubstr("micro-batch 0 with 7 rows"),
                    HasSubstr("of 3 rows")));
  EXPECT_THAT(error_of({}), HasSubstr("got no tensor"));
  EXPECT_THAT(error_of({{{}, DType::kFloat32}}), HasSubstr("with a batch dim"));
}

TEST(MakePlan, StagesReceiveWhatPassesThem) {
  Job job = LinearJob(4, 3);
  job.layers.insert(job.layers.begin() + 1, Make("skip", {"a"}));
  job.layers.push_back(Make("join", {"a"}));
  job.partition = {"cuts", {0, 3, 4, 6}, {}};
  const Plan plan = MakePlan(job, {}, nullptr);
  const TensorSpec x = {{3, 8}, DType::kFloat32};
  EXPECT_THAT(plan.stages[0].input, ElementsAre(x));
  EXPECT_THAT(plan.stages[1].input, ElementsAre(x, x));
  EXPECT_THAT(plan.stages[1].output, ElementsAre(x, x));
  EXPECT_THAT(plan.stages[2].output, ElementsAre(x));
  EXPECT_THAT(plan.layers[2].output, ElementsAre(x));
}

TEST(MakePlan, TakesShapesFromTheData) {
  Job job;
  job.layers = {Make("Flatten"), Make("Linear", {64, 10})};
  job.batch = {0, 2, 5};
  job.train_data.kind = "digits";
  EXPECT_EQ(MakePlan(job, {}, nullptr).layers[0].output[0].ToString(), "float32 (5, 64)");
}

TEST(MakePlan, ChoosesDeviceAndTransport) {
  struct Case {
    int pipe, gpus;
    const char *device, *transport, *expected_device, *expected_transport;
  };
  const Case cases[] = {
      {1, 0, "", "", "cpu", "threads"},
      {2, 0, "", "", "cpu", "gloo"},
      {2, 2, "", "", "cuda", "nccl"},
      {2, 1, "", "", "cuda", "threads"},
      {2, 2, "cpu", "", "cpu", "gloo"},
      {2, 0, "", "threads", "cpu", "threads"},
      {2, 4, "cuda", "threads", "cuda", "threads"},
      {2, 2, "", "gloo", "cpu", "gloo"},
  };
  for (const Case& c : cases) {
    Job job = LinearJob(4, c.pipe);
    job.device = c.device;
    job.transport = c.transport;
    const Plan plan = MakePlan(job, {.gpus = c.gpus}, nullptr);
    EXPECT_EQ(plan.device, c.expected_device) << c.pipe << " " << c.gpus;
    EXPECT_EQ(plan.transport, c.expected_transport) << c.pipe << " " << c.gpus;
    EXPECT_EQ(plan.notices.size(), c.gpus == 0 && std::string(c.device).empty() ? 1u : 0u);
  }
}

TEST(MakePlan, NamesLayersThatAGpuAddsUpInAnyOrder) {
  const auto notices = [](const LayerSpec& layer, int gpus = 1, bool in_parts = false) {
    Job job = LinearJob(1, 1);
    job.layers.push_back(layer);
    job.input = {};
    job.device = gpus > 0 ? "cuda" : "cpu";
    if (in_parts) job.layers = InParts(job.layers, [](int) { return true; });
    return Join(MakePlan(job, {.gpus = gpus}, nullptr).notices, "\n");
  };
  const auto make = [](const char* type, const Value::List& positional = {},
                       const Value::Map& named = {}) {
    return MakeLayer(type, positional, named, {}, "");
  };
  const LayerSpec linear = make("Upsample", {}, {{"scale_factor", 2}, {"mode", "bilinear"}});
  EXPECT_EQ(notices(linear),
            "gradients of layer 1 Upsample are added up in any order on a GPU: runs differ in the "
            "last bits");
  EXPECT_EQ(notices(linear, 0), "");
  const LayerSpec twice = MakeLayer("Sequential", {}, {}, {linear, linear}, "");
  EXPECT_EQ(notices(twice), notices(linear));
  EXPECT_EQ(notices(twice, 1, true), notices(linear)) << "once, although it is in two parts";
  EXPECT_EQ(notices(make("Upsample", {}, {{"scale_factor", 2}})), "");

  const Value::Map reflects = {{"padding", 1}, {"padding_mode", "reflect"}};
  const LayerSpec inside =
      MakeLayer("Sequential", {}, {}, {make("Conv2d", {3, 4, 3}, reflects)}, "");
  for (const LayerSpec& layer : {inside, make("ReplicationPad3d", {1}), make("MaxPool3d", {3, 2}),
                                 make("AdaptiveMaxPool2d", {Value(Value::List{7, 1})}),
                                 make("EmbeddingBag", {9, 4}, {{"mode", "max"}})}) {
    EXPECT_THAT(notices(layer), HasSubstr("in any order")) << layer.ToString();
  }
  const Value::Map pads_nothing = {{"padding_mode", "reflect"}};
  for (const LayerSpec& layer :
       {make("Conv2d", {3, 4, 3}, {{"padding", 1}}), make("Conv2d", {3, 4, 3}, pads_nothing),
        make("ReflectionPad1d", {1}), make("MaxPool3d", {3}), make("AvgPool2d", {3, 2}),
        make("AdaptiveAvgPool3d", {1}), make("EmbeddingBag", {9, 4})}) {
    EXPECT_EQ(notices(layer), "") << layer.ToString();
  }
}

TEST(MakePlan, RefusesADeviceOrTransportThatIsNotThere) {
  Job job = LinearJob(4, 2);
  job.device = "cuda";
  EXPECT_THAT(ErrorOf(job), HasSubstr("no GPU"));
  job.device = "";
  job.transport = "nccl";
  EXPECT_THAT(ErrorOf(job), HasSubstr("needs a GPU for each of the 2 ranks"));
  EXPECT_THAT(ErrorOf(job, {.gpus = 1}), HasSubstr("has 1"));
  EXPECT_EQ(ErrorOf(job, {.gpus = 2}), "no error");
  job.device = "cuda";
  job.transport = "gloo";
  EXPECT_THAT(ErrorOf(job, {.gpus = 2}), HasSubstr("\"gloo\" is for CPUs, and device is cuda"));
}

// ---- The loss

/// A job of Linear layers from 8 features to 8, with micro-batches of 4, this loss and these
/// sources of data.
Job LossJob(const std::string& loss, const std::string& train = "", const std::string& test = "",
            int64_t classes = 8) {
  Job job = LinearJob(3, 2);
  job.batch = {12, 3, 4};
  job.loss = MakeLayer(loss, {}, {}, {}, "net.lua:8");
  const auto source = [classes](const std::string& name) {
    if (name.empty()) return DataSpec();
    const Value::Map length = {{"vocabulary", 9}, {"length", 8}};
    const Value::Map shape = {{"shape", Value::IntList({8})}, {"classes", classes}};
    return ParseDataSpec(MakeDataSource(name, {}, name == "tokens" ? length : shape, "net.lua:9"),
                         nullptr, "");
  };
  job.train_data = source(train);
  job.test_data = source(test);
  return job;
}

TEST(MakePlan, RefusesALossThatCannotCompareOutputAndTarget) {
  EXPECT_EQ(ErrorOf(LossJob("CrossEntropyLoss", "images", "images")), "no error");
  EXPECT_EQ(ErrorOf(LossJob("MSELoss", "images")),
            "net.lua:8: the loss MSELoss() cannot compare the output of layer 2 Linear(8, 8), "
            "float32 (4, 8), with the target int64 (4,): expects a target in the output's shape "
            "(4, 8); nothing is broadcast");
  EXPECT_EQ(ErrorOf(LossJob("CrossEntropyLoss", "tokens")),
            "net.lua:8: the loss CrossEntropyLoss() cannot compare the output of layer 2 "
            "Linear(8, 8), float32 (4, 8), with the target int64 (4, 8): expects integer labels "
            "(4,), or probabilities (4, 8)");
}

TEST(MakePlan, RefusesALossThatCannotTakeTheTestData) {
  EXPECT_EQ(ErrorOf(LossJob("MSELoss")), "no error") << "nothing is known of the target";
  EXPECT_THAT(ErrorOf(LossJob("CrossEntropyLoss", "images", "tokens")),
              HasSubstr("with the target int64 (4, 8)"));
  EXPECT_THAT(ErrorOf(LossJob("L1Loss", "", "images")), HasSubstr("with the target int64 (4,)"));
}

TEST(MakePlan, RefusesLabelsBeyondTheOutputsClasses) {
  EXPECT_EQ(ErrorOf(LossJob("CrossEntropyLoss", "images", "", 9)),
            "net.lua:9: the labels of strata.data.images are 0 to 8, but the output float32 (4, 8) "
            "has 8 classes");
  EXPECT_THAT(ErrorOf(LossJob("NLLLoss", "", "images", 11)), HasSubstr("labels"));
  Job ignoring = LossJob("CrossEntropyLoss", "images", "", 9);
  ignoring.loss = MakeLayer("CrossEntropyLoss", {}, {{"ignore_index", 8}}, {}, "net.lua:8");
  EXPECT_EQ(ErrorOf(ignoring), "no error");
}

/// A loss that is a function of the script.
LayerSpec LossFunction() {
  LayerSpec loss;
  loss.type = "function";
  loss.scripted = true;
  loss.where = "net.lua:7";
  return loss;
}

/// A job whose data are files with these facts.
Job FilesJob(const DataFacts& facts, const char* loss, std::vector<std::string> metrics) {
  Job job = LinearJob(1, 1);
  job.layers = {Make("Linear", {8, 8})};
  job.batch = {0, 1, 4};
  job.loss = Make(loss, {});
  for (std::string& name : metrics) job.eval.metrics.push_back({std::move(name)});
  const Value csv = MakeDataSource("csv", {"a.csv"}, {}, "net.lua:9");
  job.train_data = job.test_data =
      ParseDataSpec(csv, nullptr, "", [&](const DataSpec&) { return facts; });
  return job;
}

TEST(MakePlan, RefusesMetricsOfWhatIsRightWhereNothingTells) {
  const DataFacts numbers = {8, {{{8}, DType::kFloat32}}, {{{8}, DType::kFloat32}}, 0};
  for (const char* name : {"accuracy", "top5", "f1", "confusion"}) {
    EXPECT_THAT(ErrorOf(FilesJob(numbers, "MSELoss", {name})),
                HasSubstr(Str("net.lua:9: eval: ", name, " needs labels, or a loss of scores such ",
                              "as BCEWithLogitsLoss; the targets are float32 (4, 8), and what is ",
                              "right by MSELoss() is not known")));
  }
  EXPECT_EQ(ErrorOf(FilesJob(numbers, "MSELoss", {"r2", "mae"})), "no error");
  const DataFacts labels = {8, {{{8}, DType::kFloat32}}, {{{}, DType::kInt64}}, 8};
  for (const char* name : {"r2", "mae"}) {
    EXPECT_THAT(ErrorOf(FilesJob(labels, "CrossEntropyLoss", {name})),
                HasSubstr(Str("net.lua:9: eval.metrics: ", name, " needs a target in the output's ",
                              "shape; the output is float32 (4, 8), the target int64 (4,)")));
    // The same number of elements, but at other places.
    Job turned = FilesJob({8, {{{3, 8}, DType::kFloat32}}, {{{8, 3}, DType::kFloat32}}, 0},
                          "MSELoss", {name});
    turned.loss = LossFunction();
    turned.input.reset();
    EXPECT_THAT(ErrorOf(turned), HasSubstr("float32 (4, 3, 8), the target float32 (4, 8, 3)"));
  }
  for (const char* loss : {"BCELoss", "BCEWithLogitsLoss", "CrossEntropyLoss"}) {
    EXPECT_EQ(ErrorOf(FilesJob(numbers, loss, {"accuracy", "f1"})), "no error") << loss;
  }
  for (const DType dtype : {DType::kInt64, DType::kUInt8, DType::kBool}) {
    const DataFacts whole = {8, {{{8}, DType::kFloat32}}, {{{8}, dtype}}, 0};
    EXPECT_EQ(ErrorOf(FilesJob(whole, "BCEWithLogitsLoss", {"accuracy", "f1"})), "no error");
    for (const char* loss : {"MSELoss", "L1Loss", "PoissonNLLLoss"}) {
      EXPECT_THAT(ErrorOf(FilesJob(whole, loss, {"accuracy"})),
                  HasSubstr(Str("what is right by ", Make(loss, {}).ToString(), " is not known")));
    }
  }
  Job job = FilesJob(numbers, "MSELoss", {"accuracy"});
  job.test_data = DataSpec();
  EXPECT_EQ(ErrorOf(job), "no error") << "nothing is evaluated";
  job = FilesJob(numbers, "MSELoss", {});
  job.eval.metric = "accuracy";
  EXPECT_THAT(ErrorOf(job), HasSubstr("eval: accuracy needs labels"));
}

TEST(MakePlan, RefusesTestDataThatLayersCannotTake) {
  Job job = FilesJob({9, {{{8}, DType::kFloat32}}, {{{8}, DType::kFloat32}}, 0}, "MSELoss", {});
  job.input.reset();
  EXPECT_EQ(ErrorOf(job), "no error");
  const Value npy = MakeDataSource("npy", {"a.npy"}, {}, "net.lua:12");
  job.test_data = ParseDataSpec(npy, nullptr, "", [](const DataSpec&) {
    return DataFacts{9, {{{5}, DType::kFloat32}}, {{{8}, DType::kFloat32}}, 0};
  });
  EXPECT_THAT(ErrorOf(job),
              testing::StartsWith("net.lua:12: samples of strata.data.npy are float32 "
                                  "(5,): "));
  EXPECT_THAT(ErrorOf(job), HasSubstr("expects last dim 8, got (4, 5)"));
}

TEST(MakePlan, TellsHowAColumnOfNumbersBecomesClasses) {
  Job job =
      FilesJob({9, {{{8}, DType::kFloat32}}, {{{1}, DType::kFloat32}}, 0}, "CrossEntropyLoss", {});
  EXPECT_THAT(ErrorOf(job), HasSubstr("; task = \"classes\" in strata.data.csv makes classes of a "
                                      "column of numbers"));
  job.train_data.options.Set("task", "numbers");  // the user asked for numbers
  EXPECT_THAT(ErrorOf(job), AllOf(HasSubstr("expects integer labels"), Not(HasSubstr("task"))));
}

TEST(MakePlan, TellsWhatHasNoEffect) {
  Job job = FilesJob({8, {{{8}, DType::kFloat32}}, {{{8}, DType::kFloat32}}, 0}, "MSELoss", {"r2"});
  const auto notices = [&] { return MakePlan(job, {}, nullptr).notices; };
  const auto unused = testing::Contains("nothing is evaluated: eval needs data.test");
  const auto frozen = testing::Contains("nothing learns: freeze holds for every parameter");
  EXPECT_THAT(notices(), AllOf(Not(unused), Not(frozen)));
  job.test_data = DataSpec();
  EXPECT_THAT(notices(), unused);
  job.eval.metrics.clear();
  EXPECT_THAT(notices(), Not(unused));
  job.eval.every = 5;
  EXPECT_THAT(notices(), unused);
  for (LayerSpec& layer : job.layers) layer.frozen = true;
  EXPECT_THAT(notices(), frozen);
  job.trains = false;  // predict freezes the parameters that it loads
  EXPECT_THAT(notices(), AllOf(Not(unused), Not(frozen)));
}

TEST(MakePlan, TellsOfMasksThatEndInTheLayerBefore) {
  using testing::Contains;
  const TensorSpec x = {{5, 8}, DType::kFloat32}, padding = {{5}, DType::kBool};
  const auto notices = [&](const std::string& type, const TensorSpecs& inputs, bool in_parts) {
    Job job = FilesJob({8, inputs, {x}, 0}, "MSELoss", {});
    job.input.reset();
    job.layers.assign(3, Make(type, {8, 2}, {{"batch_first", true}}));
    if (in_parts) job.layers = InParts(job.layers, [](int) { return true; });
    return MakePlan(job, {}, nullptr).notices;
  };
  for (const bool in_parts : {false, true}) {
    EXPECT_THAT(notices("TransformerEncoderLayer", {x, padding}, in_parts),
                Contains("layer 1 TransformerEncoderLayer gets no src_key_padding_mask, as the "
                         "layer before it does not hand it on; nn.TransformerEncoder{layer, "
                         "num_layers=N} gives it to all its layers"));
    EXPECT_THAT(notices("TransformerDecoderLayer", {x, x, padding}, in_parts),
                Contains(HasSubstr("gets no memory and no tgt_key_padding_mask, as")));
    EXPECT_THAT(notices("TransformerEncoderLayer", {x}, in_parts),
                Not(Contains(HasSubstr("gets no"))));
  }
}

TEST(MakePlan, TellsOfStatesThatTheNextLayerTakes) {
  using testing::Contains;
  const auto notices = [](const char* type) {
    Job job =
        FilesJob({8, {{{5, 8}, DType::kFloat32}}, {{{5, 8}, DType::kFloat32}}, 0}, "MSELoss", {});
    job.input.reset();
    job.layers.assign(2, Make("LSTM", {8, 8}, {{"batch_first", true}}));
    job.layers[1].type = type;
    job.loss = {};
    return MakePlan(job, {}, nullptr).notices;
  };
  EXPECT_THAT(notices("LSTM"),
              Contains("layer 1 LSTM takes the last states of the LSTM before it as "
                       "h_0 and c_0; function(x) return x end between them leaves "
                       "these out"));
}

TEST(MakePlan, RefusesOneClass) {
  for (const DType dtype : {DType::kFloat32, DType::kInt64}) {
    Job job = FilesJob({8, {{{8}, DType::kFloat32}}, {{{1}, dtype}}, 0}, "CrossEntropyLoss", {});
    job.layers = {Make("Linear", {8, 1})};
    EXPECT_THAT(ErrorOf(job), HasSubstr("of one class is always 0; nn.BCEWithLogitsLoss takes"));
  }
  // A score for each token.
  Job tokens =
      FilesJob({8, {{{5, 8}, DType::kFloat32}}, {{{5}, DType::kInt64}}, 1}, "CrossEntropyLoss", {});
  tokens.input.reset();
  tokens.layers = {Make("Linear", {8, 1})};
  EXPECT_THAT(ErrorOf(tokens), HasSubstr("of one class is always 0"));
}

TEST(MakePlan, ThePaddingsMaskIsNotThatOfAttention) {
  const auto error = [](const char* type, bool pads) {
    Job job = FilesJob(
        {8, {{{5, 8}, DType::kFloat32}, {{5}, DType::kBool}}, {{{5, 8}, DType::kFloat32}}, 0},
        "MSELoss", {});
    job.input.reset();
    if (pads) job.train_data.options.Set("collate", "pad");
    job.layers = {Make(type, {8, 2}, {{"batch_first", true}})};
    return ErrorOf(job);
  };
  for (const char* type : {"TransformerEncoderLayer", "MultiheadAttention"}) {
    EXPECT_THAT(error(type, true), HasSubstr("takes one that is true where there are none: "
                                             "function(x, mask) return x, mask:logical_not() end"));
    EXPECT_EQ(error(type, false), "no error");
  }
}

TEST(MakePlan, TellsWhatItsDataSay) {
  DataFacts facts = {8, {{{8}, DType::kFloat32}}, {{{8}, DType::kFloat32}}, 0};
  facts.notes = {"one", "two"};
  Job job = FilesJob(facts, "MSELoss", {});
  job.test_data.notes = {"two", "three"};
  const std::vector<std::string> notices = MakePlan(job, {}, nullptr).notices;
  EXPECT_THAT(notices,
              testing::IsSupersetOf({"data.train: one", "data.train: two", "data.test: three"}));
  EXPECT_THAT(notices, Not(testing::Contains("data.test: two"))) << "it is said once";
}

TEST(MakePlan, TellsThatTestDataAreOfTheTrainingsSplit) {
  const auto notices = [](const std::string& kind, const char* split) {
    Job job = LossJob("CrossEntropyLoss", "images", "images");
    Value source = MakeDataSource(
        "images", {}, {{"shape", Value::IntList({8})}, {"classes", 8}, {"split", split}}, "");
    if (kind == "part") source = MakeDataStep("part", source, {0, 8}, {}, "");
    if (kind != "images") source = MakeDataStep("take", source, {4}, {}, "");
    job.test_data = ParseDataSpec(source, nullptr, "", [](const DataSpec&) {
      return DataFacts{4, {{{8}, DType::kFloat32}}, {{{}, DType::kInt64}}, 8};
    });
    return MakePlan(job, {}, nullptr).notices;
  };
  const auto told = testing::Contains(HasSubstr("data.test has the split \"train\""));
  EXPECT_THAT(notices("images", "train"), told);
  EXPECT_THAT(notices("take", "train"), told);
  EXPECT_THAT(notices("images", "test"), Not(told));
  EXPECT_THAT(notices("part", "train"), Not(told)) << "the script parts it itself";
  Job job = LossJob("CrossEntropyLoss", "images");
  EXPECT_THAT(MakePlan(job, {}, nullptr).notices, Not(told)) << "there is no test data";
  const auto text = [](const char* path, const char* split) {
    return ParseDataSpec(
        MakeDataSource("text", {}, {{"path", path}, {"split", split}, {"length", 8}}, ""), nullptr,
        "");
  };
  const auto leaves_out =
      testing::Contains(HasSubstr("data.test leaves out what split = \"test\""));
  Job texts = LinearJob(1, 1);
  texts.loss = LayerSpec();
  texts.train_data = text("a.txt", "train");
  texts.test_data = text("b.txt", "train");
  EXPECT_THAT(MakePlan(texts, {}, nullptr).notices, leaves_out);
  texts.test_data = text("b.txt", "all");
  EXPECT_THAT(MakePlan(texts, {}, nullptr).notices, Not(leaves_out));
}

TEST(MakePlan, RefusesALastMicroBatchThatLayersCannotTake) {
  Job job = LinearJob(1, 1);
  job.layers = {Make("Unflatten", {0, Value::IntList({2, -1})}), Make("Flatten", {0, 1}),
                Make("Linear", {8, 8})};
  const auto error_of = [&](const char* samples_of, int64_t samples) {
    const Value::Map options = {{"shape", Value::IntList({8})}, {"samples", samples}};
    const DataSpec data =
        ParseDataSpec(MakeDataSource("images", {}, options, "net.lua:9"), nullptr, "");
    job.train_data = job.test_data = DataSpec();
    (samples_of == std::string("train") ? job.train_data : job.test_data) = data;
    job.batch = {0, 1, 4};
    return ErrorOf(job);
  };
  for (const char* of : {"train", "test"}) {
    EXPECT_EQ(error_of(of, 8), "no error");
    EXPECT_EQ(error_of(of, 10), "no error") << "two rows can be parted";
    EXPECT_THAT(error_of(of, 11),
                HasSubstr("net.lua:9: 11 samples of strata.data.images in micro-batches of 4 leave "
                          "a last one of 3 rows: "));
  }
  job.layers = {Make("Linear", {8, 8}), Make("BatchNorm1d", {8})};
  EXPECT_THAT(error_of("train", 9),
              HasSubstr("leave a last one of 1 row: layer 1 BatchNorm1d(8) needs more than one "
                        "value per channel in training; data:take(n) leaves out"));
  EXPECT_EQ(error_of("train", 10), "no error");
  EXPECT_EQ(error_of("test", 9), "no error") << "it counts in evaluations";
  job.trains = false;
  EXPECT_EQ(error_of("train", 9), "no error") << "nothing trains";
  job.trains = true;
  job.layers = {Make("Unflatten", {0, Value::IntList({2, -1})}), Make("Flatten", {0, 1})};
  EXPECT_NE(error_of("test", 11), "no error");
  job.eval.batch = 5;
  EXPECT_NE(error_of("test", 8), "no error") << "evaluations have micro-batches of their own";
  job.eval.batch = 9;
  EXPECT_EQ(error_of("test", 11), "no error");
  job.eval.batch = 0;
  job.trains = false;
  EXPECT_NE(error_of("test", 11), "no error");
  EXPECT_EQ(error_of("train", 11), "no error") << "data.train is not read";
  job.trains = true;
  EXPECT_NE(error_of("test", 11), "no error");
  job.test_data.options.Set("collate", "pad");
  EXPECT_EQ(ErrorOf(job), "no error") << "no length of its samples is known";
}

TEST(MakePlan, RefusesMicroBatchesOfOneRowThatABatchNormCannotTake) {
  Job job = LinearJob(1, 1);
  job.layers = {Make("Linear", {8, 8}), Make("BatchNorm1d", {8})};
  job.loss = Make("MSELoss");
  job.batch = {0, 4, 1};
  EXPECT_EQ(ErrorOf(job),
            "layer 1 BatchNorm1d(8) needs more than one value per channel in training; make "
            "batch.micro_batch_size larger");
  job.batch = {0, 4, 2};
  EXPECT_EQ(ErrorOf(job), "no error");
  job.batch = {0, 4, 1};
  job.trains = false;
  EXPECT_EQ(ErrorOf(job), "no error") << "outputs alone are computed";
}

/// The layers in front of the one that is refused are parts, which scripts do not count.
TEST(MakePlan, RefusesALayerByItsNumberInTheScript) {
  const std::vector<LayerSpec> halves =
      InParts({MakeLayer("Residual", {}, {}, {Make("Linear", {8, 8}), Make("ReLU")}, "")},
              [](int) { return true; });
  ASSERT_EQ(halves.size(), 2);
  Job job = LinearJob(1, 1);
  job.layers = halves;
  job.layers.push_back(Make("BatchNorm1d", {8}));
  job.loss = Make("MSELoss");
  job.batch = {0, 4, 1};
  EXPECT_THAT(ErrorOf(job), HasSubstr("layer 1 BatchNorm1d(8)"));
  job.layers.back() = Make("Embedding", {10, 4}, {{"max_norm", 1}});
  job.input.reset();  // without shapes, an Embedding may stand anywhere
  job.parallel = {1, 2, 1};
  EXPECT_THAT(ErrorOf(job), HasSubstr("layer 1 Embedding(10, 4, max_norm=1)"));
}

TEST(MakePlan, ChecksNothingOfTheTrainingWhereAJobDoesNotTrain) {
  const TensorSpec x = {{8}, DType::kFloat32}, label = {{}, DType::kInt64};
  Job job = FilesJob({8, {x}, {label}, 8}, "CrossEntropyLoss", {});
  job.input.reset();
  const Value npy = MakeDataSource("npy", {"a.npy"}, {}, "net.lua:12");
  job.train_data = ParseDataSpec(npy, nullptr, "", [&](const DataSpec&) {
    return DataFacts{8, {x}, {label}, 9};
  });
  EXPECT_THAT(ErrorOf(job), HasSubstr("net.lua:12: the labels of strata.data.npy are 0 to 8"));
  job.trains = false;
  EXPECT_EQ(ErrorOf(job), "no error");
  job.train_data = DataSpec();
  EXPECT_EQ(MakePlan(job, {}, nullptr).stages[0].input, (TensorSpecs{{{4, 8}, DType::kFloat32}}))
      << "data.test tells it";

  Job table = LinearJob(1, 1);
  table.layers = {MakeLayer("Embedding", {10, 4}, {{"max_norm", 1}}, {}, "net.lua:9")};
  table.input = TensorSpec{{5}, DType::kInt64};
  table.parallel = {1, 2, 1};
  EXPECT_THAT(ErrorOf(table), HasSubstr("max_norm shortens vectors"));
  table.trains = false;
  EXPECT_EQ(ErrorOf(table), "no error");

  Job whole = LinearJob(1, 1);
  whole.optimizer = {"adafactor", {}, {}};
  whole.zero = 1;
  EXPECT_THAT(ErrorOf(whole), HasSubstr("optimizer adafactor: its update needs whole parameters"));
  whole.trains = false;
  EXPECT_EQ(ErrorOf(whole), "no error");
}

TEST(MakePlan, RefusesMaxNormWhereCopiesOrPassesWouldDiffer) {
  using Method = RecomputeSpec::Method;
  LayerSpec table = MakeLayer("Embedding", {10, 4}, {{"max_norm", 1}}, {}, "net.lua:9");
  table.tied_key = "w";
  table.tied_weights = {"weight"};
  LayerSpec head = MakeLayer("Linear", {4, 10}, {}, {}, "");
  head.tied_key = "w";
  head.tied_weights = {"weight"};
  const auto error_of = [&](const LayerSpec& first, const LayerSpec& last, Parallel degrees,
                            Method recompute) {
    Job job = LinearJob(1, 1);
    job.layers = {first, Make("Linear", {4, 4}), last};
    job.input = TensorSpec{{5}, DType::kInt64};
    job.parallel = degrees;
    job.recompute.method = recompute;
    return ErrorOf(job);
  };
  EXPECT_EQ(error_of(table, head, {1, 1, 1}, Method::kNone), "no error");
  EXPECT_THAT(error_of(table, head, {2, 1, 1}, Method::kNone),
              HasSubstr("which is not done in a tie over several stages"));
  table.tied_key.clear();
  table.tied_weights.clear();
  const LayerSpec free = Make("Linear", {4, 10});
  EXPECT_EQ(error_of(table, free, {2, 1, 1}, Method::kNone), "no error");
  EXPECT_EQ(error_of(table, free, {1, 2, 1}, Method::kNone),
            "net.lua:9: layer 0 Embedding(10, 4, max_norm=1): max_norm shortens vectors when they "
            "are used, which is not done with data above 1");
  EXPECT_THAT(
      error_of(MakeLayer("Sequential", {}, {}, {table}, ""), free, {1, 1, 1}, Method::kStages),
      HasSubstr("which is not done where a layer is recomputed"));
}

TEST(MakePlan, RefusesChecksThatNobodyMakes) {
  Job job = LinearJob(4, 2);
  job.check.every = 1;
  EXPECT_THAT(MakePlan(job, {}, nullptr).notices, Not(Contains(HasSubstr("check needs"))));
  job.device = "cuda";
  EXPECT_THAT(ErrorOf(job, {.gpus = 2}), HasSubstr("check repeats work on CPUs only"));
  Job alone = LinearJob(4, 1);
  alone.check.every = 1;
  EXPECT_THAT(MakePlan(alone, {}, nullptr).notices,
              Contains("check needs a second rank, which repeats work: nothing is checked"));
  Job table = LinearJob(1, 1);
  table.layers = {MakeLayer("Embedding", {10, 4}, {{"max_norm", 1}}, {}, "net.lua:9"),
                  Make("Linear", {4, 10})};
  table.input = TensorSpec{{5}, DType::kInt64};
  table.parallel = {2, 1, 1};
  table.check.every = 1;
  EXPECT_THAT(ErrorOf(table), HasSubstr("which is not done where another rank repeats it (check)"));
}

/// A job on texts of `length` tokens, each with a label out of `classes` classes.
Job TokensJob(int64_t length, int64_t classes, const Value::Map& loss, DType target) {
  std::vector<int64_t> shape = {length};
  if (IsFloating(target)) shape.push_back(classes);
  Job job = FilesJob({8, {{{length, 8}, DType::kFloat32}}, {{shape, target}}, classes},
                     "CrossEntropyLoss", {});
  job.input.reset();
  job.layers = {Make("Linear", {8, classes})};
  job.loss = MakeLayer("CrossEntropyLoss", {}, loss, {}, "net.lua:4");
  return job;
}

TEST(MakePlan, FindsTheDimOfTheClasses) {
  const auto plan = [](int64_t length, int64_t classes, const Value::Map& loss,
                       DType target = DType::kInt64) {
    return MakePlan(TokensJob(length, classes, loss, target), {}, nullptr);
  };
  EXPECT_EQ(plan(5, 6, {}).class_dim, -1);
  EXPECT_EQ(
      plan(5, 6, {}).class_dim_text,
      "the classes are in dim 2 of the output (4, 5, 6), which the labels (4, 5) do not have");
  for (const DType target : {DType::kInt64, DType::kFloat32}) {
    EXPECT_EQ(plan(6, 6, {{"class_dim", -1}}, target).class_dim, -1);
    EXPECT_EQ(plan(6, 6, {{"class_dim", 1}}, target).class_dim, 1);
  }
  EXPECT_EQ(plan(6, 6, {{"class_dim", -1}}).class_dim_text,
            "the classes are in dim 2 of the output (4, 6, 6), as class_dim = -1 says");
  Job flat = FilesJob({8, {{{8}, DType::kFloat32}}, {{{}, DType::kInt64}}, 8}, "NLLLoss", {});
  EXPECT_EQ(MakePlan(flat, {}, nullptr).class_dim, std::nullopt)
      << "of other outputs it says nothing";
  EXPECT_EQ(MakePlan(flat, {}, nullptr).class_dim_text, "") << "there is no other dim";
  flat.loss = Make("MSELoss", {});
  flat.train_data.kind = flat.test_data.kind = "";
  EXPECT_EQ(MakePlan(flat, {}, nullptr).class_dim, std::nullopt);
}

TEST(MakePlan, RefusesTargetsThatFitTwoDims) {
  for (const int dim : {-7, 0, 7}) {
    EXPECT_THAT(ErrorOf(TokensJob(5, 6, {{"class_dim", dim}}, DType::kInt64)),
                HasSubstr("is no dim of classes of the output (4, 5, 6)"));
  }
  for (const auto& [length, target] :
       {std::pair(6, DType::kInt64), std::pair(5, DType::kFloat32)}) {
    EXPECT_THAT(ErrorOf(TokensJob(length, 6, {}, target)),
                AllOf(HasSubstr("net.lua:4: the loss CrossEntropyLoss() cannot compare"),
                      HasSubstr("say which: nn.CrossEntropyLoss{class_dim = 1} or ")));
  }
}

TEST(MakePlan, MetricsOfALossFunctionFindTheirClassesInTheSameWay) {
  const auto job = [](int64_t length, std::optional<int64_t> class_dim,
                      DType target = DType::kInt64) {
    Job job = TokensJob(length, 6, {}, target);
    job.loss = LossFunction();
    job.eval.metrics = {{"f1"}};
    job.eval.class_dim = class_dim;
    return job;
  };
  const auto dim = [&](const Job& job) { return MakePlan(job, {}, nullptr).class_dim; };
  EXPECT_EQ(dim(job(5, {})), -1);
  EXPECT_EQ(dim(job(6, -1)), -1);
  EXPECT_EQ(dim(job(6, 1)), 1);
  EXPECT_THAT(ErrorOf(job(6, {})),
              AllOf(HasSubstr("net.lua:9: eval: f1: the output (4, 6, 6) may have the classes in "
                              "dim 1, as in PyTorch, or in its last dim"),
                    HasSubstr("say which: eval = {class_dim = 1} or eval = {class_dim = -1}")));
  EXPECT_THAT(ErrorOf(job(5, 1)), HasSubstr("eval: f1 needs labels in the shape of the output "
                                            "without the dim of its classes (1); the output is "
                                            "float32 (4, 5, 6), the target int64 (4, 5)"));
  for (const DType other : {DType::kBool, DType::kFloat32}) {
    EXPECT_THAT(ErrorOf(job(5, {}, other)), HasSubstr("eval: f1 needs labels"));
  }
  Job unknown = job(6, -1);
  unknown.train_data = unknown.test_data = DataSpec();
  EXPECT_EQ(dim(unknown), -1) << "eval says it even where no shapes are known";
  EXPECT_THAT(ErrorOf(job(6, (int64_t{1} << 32) + 1)),
              HasSubstr("without the dim of its classes (2147483647)"));
  Job without = job(6, {});
  without.eval.metrics = {{"perplexity"}};
  EXPECT_EQ(ErrorOf(without), "no error") << "it is the exponential of the loss";
}

TEST(MakePlan, RefusesTokensBeyondTheFirstLayersRows) {
  Job job = LinearJob(1, 1);
  job.input.reset();
  const auto embedding = [](int64_t rows) {
    return MakeLayer("Embedding", {rows, 4}, {}, {}, "net.lua:3");
  };
  job.train_data = ParseDataSpec(
      MakeDataSource("tokens", {}, {{"vocabulary", 9}, {"length", 8}}, "net.lua:9"), nullptr, "");
  job.layers = {embedding(9)};
  EXPECT_EQ(ErrorOf(job), "no error");
  job.layers = {embedding(8)};
  EXPECT_EQ(ErrorOf(job),
            "net.lua:9: strata.data.tokens gives 9 different tokens, but layer 0 Embedding(8, 4) "
            "has 8 rows");
}

/// The first micro-batch, of 4 rows, of a data function. The target is labels unless it is given.
FirstBatch Labeled(std::vector<int64_t> labels, TensorSpecs target = {{{4}, DType::kInt64}}) {
  return {{{{4, 8}, DType::kFloat32}}, std::move(target), {}, std::move(labels)};
}

TEST(MakePlan, RefusesTheTargetsOfADataFunction) {
  FakeScript script;
  Job job = LossJob("CrossEntropyLoss");
  job.train_data = {"function", {}, {2, "net.lua:20", "e"}, "net.lua:20"};
  const auto error_of = [&](FirstBatch first) {
    script.data = std::move(first);
    return ErrorOf(job, {}, &script);
  };
  EXPECT_EQ(error_of(Labeled({-100, 0, 7})), "no error") << "-100 is ignored";
  EXPECT_EQ(error_of(Labeled({0, 8})),
            "net.lua:20: the data function gives micro-batch 0 the label 8, but the output float32 "
            "(4, 8) has 8 classes");
  EXPECT_THAT(error_of(Labeled({-1, 0})), HasSubstr("the label -1"));
  EXPECT_THAT(error_of(Labeled({}, {{{4, 8}, DType::kInt64}})),
              HasSubstr("cannot compare the output of layer 2"));
  EXPECT_EQ(error_of(Labeled({}, {})),
            "net.lua:20: the loss CrossEntropyLoss() takes one target, the data gives no "
            "tensor");
  EXPECT_THAT(error_of(Labeled({}, {{{4}, DType::kInt64}, {{4}, DType::kBool}})),
              HasSubstr("takes one target"));
  FirstBatch wide = Labeled({1});
  wide.input[0].shape[1] = 9;
  EXPECT_THAT(error_of(wide), HasSubstr("layer 0 Linear(8, 8) cannot take the input"))
      << "though the job tells another input's shape";
}

TEST(MakePlan, RefusesTheTargetsOfATestFunction) {
  FakeScript script;
  Job job = LossJob("CrossEntropyLoss", "images");
  job.test_data = {"function", {}, {FakeScript::kTestData, "net.lua:21", "e"}, "net.lua:21"};
  script.test_data = Labeled({7});
  EXPECT_EQ(ErrorOf(job, {}, &script), "no error");
  script.test_data = Labeled({8});
  EXPECT_THAT(ErrorOf(job, {}, &script), HasSubstr("net.lua:21: the data function gives"));
}

TEST(MakePlan, RefusesTheTokensOfADataFunction) {
  FakeScript script;
  Job job = LinearJob(1, 1);
  job.layers = {MakeLayer("Embedding", {8, 4}, {}, {}, "net.lua:3")};
  job.input.reset();
  job.train_data = {"function", {}, {2, "net.lua:20", "e"}, "net.lua:20"};
  script.data = {{{{3, 2}, DType::kInt64}}, {}, {0, 7}, {}};
  EXPECT_EQ(ErrorOf(job, {}, &script), "no error");
  script.data.tokens = {0, 8};
  EXPECT_EQ(ErrorOf(job, {}, &script),
            "net.lua:20: the data function gives micro-batch 0 the token 8, but layer 0 "
            "Embedding(8, 4) has 8 rows");
}

TEST(MakePlan, AScriptsLossIsTried) {
  Job job = LossJob("MSELoss", "images");
  job.loss = Function();
  EXPECT_EQ(ErrorOf(job), "no error") << "without its script";
  FakeScript script;
  EXPECT_EQ(ErrorOf(job, {}, &script), "net.lua:4: the shapes differ");
  job.loss = LayerSpec();
  EXPECT_EQ(ErrorOf(job), "no error") << "nor does a job without a loss";
}

TEST(MakePlan, AScriptsMetricsAreTriedOnTestData) {
  FakeScript script;
  Job job = LossJob("CrossEntropyLoss", "images", "images");
  job.eval.metrics.push_back({"mine", {3, "net.lua:4", "m"}});
  EXPECT_EQ(ErrorOf(job, {}, &script), "net.lua:4: the shapes differ");
  EXPECT_EQ(ErrorOf(job), "no error") << "without its script";
  job.test_data = DataSpec();
  EXPECT_EQ(ErrorOf(job, {}, &script), "no error") << "nothing is evaluated";
  job.test_data = {"function", {}, {FakeScript::kTestData, "net.lua:21", "e"}, "net.lua:21"};
  script.test_data = Labeled({7});
  EXPECT_EQ(ErrorOf(job, {}, &script), "net.lua:4: the shapes differ");
}

TEST(PlanText, NamesTheRanksOfAllReplicas) {
  const std::string text = PlanText(MakePlan(LinearJob(4, 2), {.world_size = 6}, nullptr));
  EXPECT_THAT(text, AllOf(HasSubstr("stage  ranks"), HasSubstr("0 to 2"), HasSubstr("3 to 5")));
}

TEST(PlanText, ShowsLayersStagesAndCuts) {
  FakeScript script;
  const std::string text = PlanText(MakePlan(AlexNetJob(2), {}, &script));
  EXPECT_THAT(text, AllOf(HasSubstr("37,752,832"), HasSubstr("57,044,810 parameters"),
                          HasSubstr("cuts 0, 19, 22"), HasSubstr("4 micro-batches of 8"),
                          HasSubstr("(8, 256, 6, 6)"), HasSubstr("0 to 18")));
}

TEST(PlanValue, KeepsEverything) {
  FakeScript script;
  const Value value = PlanValue(MakePlan(AlexNetJob(2), {}, &script));
  EXPECT_EQ(value["layers"].as_list().size(), 22u);
  EXPECT_EQ(value["layers"].as_list()[16]["parameters"].as_int(), 37752832);
  EXPECT_THAT(value["bounds"].as_ints(), ElementsAre(0, 19, 22));
  EXPECT_EQ(value["stages"].as_list()[1]["input"].as_list()[0]["shape"].ToLua(), "{8, 4096}");
  EXPECT_EQ(value["parallel"]["pipe"].as_int(), 2);
  EXPECT_EQ(Value::FromJson(value.ToJson()), value);
}

}  // namespace
}  // namespace strata
