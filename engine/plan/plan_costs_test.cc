#include "engine/plan/plan_costs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/size_class.h"
#include "engine/base/testing.h"
#include "engine/base/text.h"
#include "engine/layers/head_chunks.h"
#include "engine/layers/parts.h"
#include "engine/plan/plan_testing.h"

namespace strata {
namespace {

/// A job of these layers for micro-batches of 8 samples.
Job JobOf(std::vector<LayerSpec> layers, std::vector<int64_t> sample,
          DType dtype = DType::kFloat32) {
  Job job;
  job.layers = std::move(layers);
  job.input = TensorSpec{std::move(sample), dtype};
  job.loss = Make("CrossEntropyLoss");
  job.batch = {.micro_batches = 4, .micro_batch_size = 8};
  job.device = "cpu";
  job.optimizer.options.Set("momentum", 0.9);
  return job;
}

/// The options of a precision type when a script gives none.
Value PrecisionOptions(const std::string& type) {
  for (const OptionTable& table : PrecisionTypes()) {
    if (table.name == type) return Canonicalize(table.fields, {.subject = type});
  }
  return {};
}

ModelCosts Costs(const Job& job) { return CostsOf(job, MakePlan(job, {}, nullptr), nullptr); }

/// Many small layers matter as much as a large one; a layer that does almost no work does not
/// matter.
TEST(FastestFlops, IsOfTheLayersThatHaveTheWork) {
  ModelCosts costs;
  EXPECT_EQ(FastestFlops(costs), 0);
  const auto layer = [](double flops, double seconds) {
    LayerCost cost;
    cost.forward = {.flops = flops, .seconds = seconds};
    cost.input_grad = {.flops = flops, .seconds = 2 * seconds};
    return cost;
  };
  costs.layers = {layer(3000, 10), layer(0, 0)};
  costs.layers.insert(costs.layers.end(), 40, layer(100, 0.2));
  EXPECT_EQ(FastestFlops(costs), 500);
  costs.layers.push_back(layer(300, 0.1));
  EXPECT_EQ(FastestFlops(costs), 500) << "of 4 % of the work";
  costs.layers[0].input_grad.seconds = 1;
  EXPECT_EQ(FastestFlops(costs), 3000) << "any pass";
}

LayerCost CostOf(const LayerSpec& layer, std::vector<int64_t> sample,
                 DType dtype = DType::kFloat32) {
  return Costs(JobOf({layer}, std::move(sample), dtype)).layers[0];
}

TEST(CostsTest, NoTypeOfLayerIsWithoutARule) {
  for (const LayerType& type : LayerTypes()) {
    EXPECT_EQ(type.cost != nullptr, type.stands_for.empty()) << type.name;
  }
}

TEST(CostsTest, ALayerWithoutARuleIsRefusedByName) {
  Job job = JobOf({Make("ReLU")}, {4});
  job.layers[0].type = "Nothing";
  const TensorSpecs tensors = {TensorSpec{{8, 4}}};
  EXPECT_THAT(ConfigErrorOf([&] { CostsOf(job, tensors, {tensors}, 1, nullptr); }),
              ::testing::AllOf(::testing::HasSubstr("net.lua:3"), ::testing::HasSubstr("Nothing")));
}

TEST(CostsTest, CountsTwoOperationsForEachProductOfALinear) {
  const LayerCost cost = CostOf(Make("Linear", {64, 10}), {64});
  EXPECT_EQ(cost.forward.flops, 2.0 * 8 * 64 * 10);
  EXPECT_EQ(cost.input_grad.flops, cost.forward.flops);
  EXPECT_EQ(cost.weight_grad.flops, cost.forward.flops);
  EXPECT_EQ(cost.parameters, 64 * 10 + 10);
  EXPECT_EQ(cost.weight_bytes, 4 * (640 + 16));  // with padding
  EXPECT_EQ(cost.gradient_bytes, 4 * (640 + 16));
}

TEST(CostsTest, AFrozenLayerHasNoWeightGradient) {
  LayerSpec layer = Make("Linear", {64, 10});
  layer.frozen = true;
  const LayerCost cost = CostOf(layer, {64});
  EXPECT_EQ(cost.weight_grad, Work());
  EXPECT_EQ(cost.parameters, 0);
  EXPECT_EQ(cost.gradient_bytes, 0);
  EXPECT_EQ(cost.weight_bytes, 4 * (640 + 16));  // with padding
  EXPECT_FALSE(cost.keeps_input);
}

// If a step does not count, the statistics must be as they were before it, so they are kept twice.
TEST(CostsTest, StateIsThereTwiceUnlessEveryStepCounts) {
  Job job = JobOf({Make("BatchNorm2d", {4096})}, {4096, 2, 2});
  const int64_t kept = Costs(job).layers[0].buffer_bytes;
  job.nonfinite = "warn";
  const int64_t alone = Costs(job).layers[0].buffer_bytes;
  EXPECT_GE(alone, 2 * 4 * 4096);  // the mean and the variance
  EXPECT_EQ(kept, 2 * alone);
}

TEST(CostsTest, AGroupsOwnOptimizerKeepsItsOwnState) {
  Job job = JobOf({Make("Linear", {64, 64})}, {64});  // SGD with momentum has one moment
  ParameterGroup adam;
  adam.type = "adam";
  adam.parameters = "weight";
  job.optimizer.groups = {adam};
  const ModelCosts costs = Costs(job);
  EXPECT_EQ(costs.moments, 1);
  EXPECT_EQ(costs.layers[0].buffer_bytes, 0);
  EXPECT_EQ(costs.layers[0].extra_state_bytes, 4 * 64 * 64);
  const StageCost stage = SumLayers(costs, 0, 1);
  EXPECT_EQ(stage.extra_state_bytes, 4 * 64 * 64);
  const int64_t moment = 4 * (64 * 64 + 64);
  EXPECT_EQ(StageMemory(costs, stage, {.owners = 1}) - StageMemory(costs, stage, {.owners = 4}),
            AllocatedBytes(moment) - AllocatedBytes(moment / 4) + 4 * 64 * 64 / 4 * 3);
}

TEST(CostsTest, AConvolutionMeetsItsFilterAtEveryPlaceOfTheOutput) {
  const LayerCost cost =
      CostOf(Make("Conv2d", {3, 64, 11, 4, 2}), {3, 224, 224});  // the output has 55 x 55 places
  EXPECT_EQ(cost.forward.flops, 2.0 * 8 * 55 * 55 * 64 * 3 * 11 * 11);
  const LayerCost grouped = CostOf(Make("Conv2d", {64, 64, 3}, {{"groups", 64}}), {64, 10, 10});
  EXPECT_EQ(grouped.forward.flops, 2.0 * 8 * 8 * 8 * 64 * 9);
  const LayerCost transposed = CostOf(Make("ConvTranspose2d", {16, 8, 2, 2}), {16, 5, 5});
  EXPECT_EQ(transposed.forward.flops, 2.0 * 8 * 5 * 5 * 16 * 8 * 4);
}

TEST(CostsTest, ATransformerLayerHasItsProjectionsItsScoresAndItsBlocks) {
  const int t = 16, e = 32, h = 64;
  Value::Map options = {{"dim_feedforward", h}, {"batch_first", true}, {"dropout", 0.0}};
  const LayerCost cost = CostOf(Make("TransformerEncoderLayer", {e, 4}, options), {t, e});
  const double rows = 8.0 * t;
  const double projections = 2 * rows * (3 * e * e + e * e + 2 * e * h);
  const double scores = 4 * rows * t * e;
  EXPECT_EQ(cost.forward.flops, projections + scores);
  EXPECT_EQ(cost.input_grad.flops, projections + 2 * scores);
  EXPECT_EQ(cost.weight_grad.flops, projections);
}

// Without dropout the ReLU keeps the tensor that is also the second linear layer's input, so
// nothing is freed before the ReLU's backward.
TEST(CostsTest, BehindAReluAloneTwoHiddenGradientsAreThereAtOnce) {
  const int t = 16, e = 32, h = 2048;
  const auto scratch = [&](const char* activation, double dropout) {
    const Value::Map options = {{"dim_feedforward", h},
                                {"batch_first", true},
                                {"activation", activation},
                                {"dropout", dropout}};
    return CostOf(Make("TransformerEncoderLayer", {e, 4}, options), {t, e}).backward_scratch;
  };
  const int64_t hidden = AllocatedBytes(4 * 8 * t * h);
  EXPECT_EQ(scratch("relu", 0), 2 * hidden);
  EXPECT_EQ(scratch("relu", 0.1), hidden);
  EXPECT_EQ(scratch("gelu", 0), hidden);
}

TEST(CostsTest, ATransformerHasWhatItsTwoStacksHave) {
  const int t = 16, e = 32, h = 64;
  const auto of = [&](int encoders, int decoders) {
    const Value::Map options = {{"batch_first", true}, {"dropout", 0.0}};
    const Job job = JobOf({Make("skip", {"source"}), Make("join", {"source"}, {{"how", "pass"}}),
                           Make("Transformer", {e, 4, encoders, decoders, h}, options)},
                          {t, e});
    return Costs(job).layers[2];
  };
  const LayerCost cost = of(2, 3);
  const double rows = 8.0 * t, scores = 4 * rows * t * e;
  const double block = 2 * rows * 2 * e * h, attention = 2 * rows * 4 * e * e + scores;
  EXPECT_EQ(cost.forward.flops, 2 * (attention + block) + 3 * (2 * attention + block));
  EXPECT_EQ(cost.input_grad.flops, cost.forward.flops + (2 + 3 * 2) * scores);
  EXPECT_EQ(cost.kept_bytes - of(1, 3).kept_bytes, of(4, 3).kept_bytes - of(3, 3).kept_bytes);
  EXPECT_GT(cost.kept_bytes, of(1, 3).kept_bytes);
  EXPECT_FALSE(cost.is_guess);
}

TEST(CostsTest, EveryTypeOfLayerHasARule) {
  const std::vector<std::pair<LayerSpec, std::vector<int64_t>>> cases = {
      {Make("Conv1d", {3, 4, 3}), {3, 9}},
      {Make("LayerNorm", {6}), {6}},
      {Make("RMSNorm", {6}), {6}},
      {Make("BatchNorm2d", {3}), {3, 4, 4}},
      {Make("GroupNorm", {1, 3}), {3, 4, 4}},
      {Make("ReLU"), {6}},
      {Make("GELU"), {6}},
      {Make("SiLU"), {6}},
      {Make("Tanh"), {6}},
      {Make("Sigmoid"), {6}},
      {Make("Softmax", {1}), {6}},
      {Make("LeakyReLU"), {6}},
      {Make("Tanhshrink"), {6}},
      {Make("GLU"), {6}},
      {Make("PReLU"), {6}},
      {Make("Dropout", {0.5}), {6}},
      {Make("MaxPool2d", {2}), {3, 4, 4}},
      {Make("AvgPool2d", {2}), {3, 4, 4}},
      {Make("AdaptiveAvgPool2d", {2}), {3, 4, 4}},
      {Make("MultiheadAttention", {8, 2}), {4, 8}},
      {Make("TransformerDecoderLayer", {8, 2}), {4, 8}},
      {Make("Conv3d", {3, 4, 2}), {3, 3, 4, 4}},
      {Make("BatchNorm1d", {6}), {6}},
      {Make("InstanceNorm2d", {3}, {{"affine", true}}), {3, 4, 4}},
      {Make("Dropout2d", {0.5}), {3, 4, 4}},
      {Make("AlphaDropout", {0.5}), {6}},
      {Make("AdaptiveMaxPool3d", {2}), {3, 4, 4, 4}},
      {Make("ReflectionPad1d", {2}), {3, 6}},
      {Make("LSTM", {6, 5}), {4, 6}},
      {Make("GRU", {6, 5, 2}), {4, 6}},
      {Make("GroupedQueryAttention", {8, 4}, {{"num_kv_heads", 2}}), {4, 8}},
      {Make("SwiGLU", {8, 12}), {4, 8}},
  };
  for (const auto& [layer, sample] : cases) {
    const LayerCost cost = CostOf(layer, sample);
    EXPECT_GT(cost.forward.bytes, 0) << layer.type;
    EXPECT_GT(cost.input_grad.bytes, 0) << layer.type;
    EXPECT_EQ(cost.weight_grad.bytes > 0, cost.parameters > 0) << layer.type;
    EXPECT_TRUE(cost.keeps_input || cost.keeps_output || cost.kept_bytes > 0) << layer.type;
    EXPECT_FALSE(cost.is_guess) << layer.type;
  }
  for (const LayerSpec& layer : {Make("Identity"), Make("Flatten")}) {
    const LayerCost cost = CostOf(layer, {3, 4});
    EXPECT_TRUE(cost.passes_input) << layer.type;
    EXPECT_EQ(cost.forward, Work()) << layer.type;
  }
  const LayerCost embedding = CostOf(Make("Embedding", {10, 4}), {5}, DType::kInt64);
  EXPECT_GT(embedding.weight_grad.bytes, 0);
}

TEST(CostsTest, AnActivationKeepsWhatItsBackwardReads) {
  const auto kept = [](const char* type, Value::Map args = {}) {
    const LayerCost cost = CostOf(Make(type, {}, args), {16});
    return Str(cost.keeps_input ? "input " : "", cost.keeps_output ? "output " : "",
               cost.kept_bytes / (8 * 16 * 4));
  };
  EXPECT_EQ(kept("ELU"), "input 0");
  EXPECT_EQ(kept("Tanh"), "output 0");
  EXPECT_EQ(kept("LogSoftmax"), "output 0");
  EXPECT_EQ(kept("Tanhshrink"), "1");
  EXPECT_EQ(kept("Softsign"), "input 1");
  EXPECT_EQ(kept("Hardtanh"), "input 0");
  EXPECT_EQ(kept("Hardtanh", {{"inplace", true}}), "output 0");
}

// A mean over one window is at::mean(), which does not keep its input.
TEST(CostsTest, MeansOfSeveralWindowsKeepTheirInput) {
  const auto keeps_input = [](const char* type, Value::Map args, std::vector<int64_t> sample) {
    const LayerCost cost = CostOf(Make(type, {}, std::move(args)), std::move(sample));
    EXPECT_FALSE(cost.keeps_output);
    EXPECT_EQ(cost.kept_bytes, 0);
    return cost.keeps_input;
  };
  const Value::List none_and_one = {Value(), 1};
  EXPECT_TRUE(keeps_input("AdaptiveAvgPool2d", {{"output_size", 2}}, {3, 8, 8}));
  EXPECT_TRUE(keeps_input("AdaptiveAvgPool2d", {{"output_size", none_and_one}}, {3, 8, 8}));
  EXPECT_FALSE(keeps_input("AdaptiveAvgPool2d", {{"output_size", none_and_one}}, {3, 1, 8}));
  EXPECT_FALSE(keeps_input("AdaptiveAvgPool2d", {{"output_size", 1}}, {3, 8, 8}));
  EXPECT_FALSE(keeps_input("AdaptiveAvgPool1d", {{"output_size", 1}}, {8, 8}));
  EXPECT_FALSE(keeps_input("AdaptiveAvgPool3d", {{"output_size", 1}}, {3, 4, 4, 4}));
  EXPECT_TRUE(keeps_input("Upsample", {{"size", 4}, {"mode", "area"}}, {3, 8, 8}));
  EXPECT_FALSE(keeps_input("Upsample", {{"size", 1}, {"mode", "area"}}, {3, 8, 8}));
  EXPECT_FALSE(keeps_input("Upsample", {{"size", 4}, {"mode", "bilinear"}}, {3, 8, 8}));
}

TEST(CostsTest, AConvolutionKeepsACopyWithThePaddingThatItCannotDo) {
  const auto kept = [](Value::Map args) {
    const LayerCost cost = CostOf(Make("Conv2d", {2, 4}, std::move(args)), {2, 6, 6});
    return Str(cost.keeps_input ? "input " : "", cost.kept_bytes);
  };
  const auto padded = [](int64_t side) { return AllocatedBytes(4 * 8 * 2 * side * side); };
  EXPECT_EQ(kept({{"kernel_size", 3}, {"padding", 1}}), "input 0");
  EXPECT_EQ(kept({{"kernel_size", 3}, {"padding", "same"}}), "input 0");
  EXPECT_EQ(kept({{"kernel_size", 4}, {"padding", "same"}}), Str(padded(7)));
  EXPECT_EQ(kept({{"kernel_size", 3}, {"padding_mode", "circular"}}), "input 0") << "none is added";
  EXPECT_EQ(kept({{"kernel_size", 3}, {"padding", 1}, {"padding_mode", "circular"}}),
            Str(padded(8)));
  for (const char* mode : {"reflect", "replicate"}) {
    EXPECT_EQ(kept({{"kernel_size", 3}, {"padding", 1}, {"padding_mode", mode}}),
              Str("input ", padded(8)))
        << mode;
  }
}

TEST(CostsTest, CountsWhatIsKeptOnce) {
  // The ReLU keeps its output, so the second linear layer need not keep it again as its input.
  const Job job = JobOf({Make("Linear", {64, 32}), Make("ReLU"), Make("Linear", {32, 10})}, {64});
  const StageCost sum = SumLayers(Costs(job), 0, 3);
  const int64_t input = AllocatedBytes(4 * 8 * 64), hidden = AllocatedBytes(4 * 8 * 32);
  const int64_t logits = AllocatedBytes(4 * 8 * 10);  // the loss keeps their logarithms
  EXPECT_EQ(sum.input_bytes, input);
  EXPECT_EQ(sum.kept_bytes, input + hidden + logits);
  EXPECT_EQ(sum.deferred_bytes, input + hidden + hidden + logits);
  EXPECT_GE(sum.forward_peak, sum.kept_bytes);
  EXPECT_GT(sum.backward_peak, sum.kept_bytes);
  EXPECT_GE(sum.input_grad_peak, sum.backward_peak);
}

TEST(CostsTest, TheFirstStageComputesNoGradientOfItsInput) {
  const Job job = JobOf({Make("Linear", {64, 32}), Make("Linear", {32, 10})}, {64});
  const ModelCosts costs = Costs(job);
  const StageCost first = SumLayers(costs, 0, 1), second = SumLayers(costs, 1, 2);
  EXPECT_EQ(first.input_grad.flops, 0);
  EXPECT_EQ(first.weight_grad.flops, first.forward.flops);
  EXPECT_GT(second.input_grad.flops, 0);
  EXPECT_EQ(SumLayers(costs, 0, 2).input_grad.flops, second.input_grad.flops);
}

TEST(CostsTest, LayersBeforeTheFirstTrainableOneKeepNothing) {
  LayerSpec frozen = Make("Linear", {64, 32});
  frozen.frozen = true;
  const Job job = JobOf({frozen, Make("Tanh"), Make("Linear", {32, 10})}, {64});
  const StageCost sum = SumLayers(Costs(job), 0, 3);
  // The last layer's input is kept nevertheless.
  EXPECT_EQ(sum.kept_bytes,
            AllocatedBytes(4 * 8 * 64) + AllocatedBytes(4 * 8 * 32) + AllocatedBytes(4 * 8 * 10));
  EXPECT_EQ(sum.input_grad.flops, 0);
}

TEST(CostsTest, RecomputedSegmentsKeepTheirInputs) {
  std::vector<LayerSpec> layers;
  for (int i = 0; i < 12; ++i) layers.push_back(i % 2 ? Make("Tanh") : Make("Linear", {32, 32}));
  const ModelCosts costs = Costs(JobOf(layers, {32}));
  const StageCost kept = SumLayers(costs, 0, 12);
  const int64_t tensor = AllocatedBytes(4 * 8 * 32);
  const StageCost whole = SumLayers(costs, 0, 12, std::vector<int>(12, 0));
  EXPECT_EQ(whole.kept_bytes, tensor);
  EXPECT_EQ(whole.kept_bytes + whole.recomputed_bytes, kept.kept_bytes);
  EXPECT_EQ(whole.recompute.flops, kept.forward.flops);
  EXPECT_EQ(whole.backward_peak, kept.backward_peak);
  const StageCost halves =
      SumLayers(costs, 0, 12, std::vector<int>{0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1});
  EXPECT_EQ(halves.kept_bytes, 2 * tensor);
  EXPECT_LT(halves.recomputed_bytes, whole.recomputed_bytes);
  EXPECT_LT(halves.backward_peak, whole.backward_peak);
  const StageCost some =
      SumLayers(costs, 8, 12, std::vector<int>{-1, -1, -1, -1, -1, -1, -1, -1, -1, -1, 0, 0});
  EXPECT_LT(some.kept_bytes, SumLayers(costs, 8, 12).kept_bytes);
  EXPECT_EQ(some.recompute.flops, costs.layers[10].forward.flops);
}

TEST(CostsTest, RanksOfTheModelAxisShareTheWork) {
  Job job = JobOf({Make("Linear", {64, 32}, {{"split", "column"}}), Make("ReLU"),
                   Make("Linear", {32, 64}, {{"split", "row"}}), Make("Linear", {64, 10})},
                  {64});
  const ModelCosts whole = Costs(job);
  job.parallel.model = 2;
  const ModelCosts half = Costs(job);
  for (int i : {0, 2}) {
    EXPECT_EQ(half.layers[i].forward.flops, whole.layers[i].forward.flops / 2) << i;
  }
  EXPECT_EQ(half.layers[0].parameters, whole.layers[0].parameters / 2);
  EXPECT_EQ(half.layers[2].parameters, 64 * 16 + 64);  // the bias is not split
  EXPECT_EQ(half.layers[1].forward.bytes, whole.layers[1].forward.bytes / 2);
  EXPECT_EQ(half.layers[0].input_grad.axis_bytes,
            4 * 8 * 64);                            // an all-reduce moves 2 (M-1)/M of the tensor
  EXPECT_EQ(half.layers[0].forward.axis_bytes, 0);  // the outputs stay split
  EXPECT_EQ(half.layers[2].forward.axis_bytes, 4 * 8 * 64);
  EXPECT_EQ(half.layers[3].forward, whole.layers[3].forward);
}

TEST(CostsTest, RatesGiveSeconds) {
  ModelCosts costs = Costs(JobOf({Make("Linear", {64, 10}), Make("ReLU")}, {64}));
  SetSeconds(costs, {.flops = 1e9, .memory = 1e12, .launch = 1e-6});
  EXPECT_DOUBLE_EQ(costs.layers[0].forward.seconds, 2.0 * 8 * 640 / 1e9 + 1e-6);
  SetSeconds(costs, {.flops = 1e15, .memory = 1e9});
  EXPECT_DOUBLE_EQ(costs.layers[1].forward.seconds, costs.layers[1].forward.bytes / 1e9);
  EXPECT_EQ(costs.layers[1].weight_grad.seconds, 0);
  EXPECT_DOUBLE_EQ(costs.update_seconds, 20 / 1e9);  // SGD with momentum
  EXPECT_EQ(costs.state_bytes, 4);
}

TEST(CostsTest, ConnectionsAreInputsToo) {
  const Job job = JobOf({Make("skip", {"a"}), Make("Linear", {8, 8}), Make("join", {"a"})}, {8});
  const ModelCosts costs = Costs(job);
  EXPECT_EQ(costs.layers[2].input_bytes, 2 * AllocatedBytes(4 * 8 * 8));
  EXPECT_EQ(costs.layers[2].output_bytes, AllocatedBytes(4 * 8 * 8));
}

TEST(CostsTest, HalfPrecisionHalvesActivationsAndAddsACopyOfTheParameters) {
  Job job = JobOf({Make("Linear", {64, 64}), Make("GELU"), Make("Linear", {64, 10})}, {64});
  const ModelCosts whole = Costs(job);
  job.precision = ReadPrecision("bf16", PrecisionOptions("bf16"));
  const ModelCosts half = Costs(job);
  EXPECT_EQ(2 * half.layers[1].output_bytes, whole.layers[1].output_bytes);
  EXPECT_EQ(half.layers[0].gradient_bytes, whole.layers[0].gradient_bytes);
  EXPECT_EQ(2 * half.layers[0].weight_bytes, 3 * whole.layers[0].weight_bytes);
  EXPECT_EQ(2 * half.layers[0].copy_bytes, whole.layers[0].weight_bytes);
  EXPECT_EQ(whole.layers[0].copy_bytes, 0);
  EXPECT_EQ(half.layers[0].forward.flops, whole.layers[0].forward.flops);
  EXPECT_LT(half.layers[0].forward.bytes, 0.51 * whole.layers[0].forward.bytes);
  // In half precision a product is a tensor of its own until it is added to the float32 sum.
  EXPECT_EQ(half.layers[0].backward_scratch, AllocatedBytes(2 * 64 * 64));
  EXPECT_EQ(whole.layers[0].backward_scratch, 0);
}

TEST(CostsTest, ALayerWithATypeOfItsOwnConvertsWhatItTakesAndGives) {
  const LayerSpec own = Make("Linear", {64, 64}, {{"dtype", "float32"}});
  Job job = JobOf({Make("ReLU"), own, Make("ReLU")}, {64});
  job.precision = ReadPrecision("bf16", PrecisionOptions("bf16"));
  const ModelCosts costs = Costs(job);
  const LayerCost& typed = costs.layers[1];
  EXPECT_EQ(typed.weight_bytes, typed.gradient_bytes);  // there is no copy
  EXPECT_EQ(typed.output_bytes, AllocatedBytes(2 * 8 * 64));
  EXPECT_EQ(typed.kept_bytes, AllocatedBytes(4 * 8 * 64));  // the input is converted
  EXPECT_FALSE(typed.keeps_input);
  EXPECT_GT(typed.forward_scratch, 0);
  // If nothing has to be converted, the layer costs as much as without a precision type.
  job.precision = {};
  Job plain = job;
  plain.layers[1] = Make("Linear", {64, 64});
  const LayerCost same = Costs(job).layers[1], expected = Costs(plain).layers[1];
  EXPECT_EQ(same.forward, expected.forward);
  EXPECT_EQ(same.kept_bytes, expected.kept_bytes);
  EXPECT_EQ(same.keeps_input, expected.keeps_input);
  EXPECT_EQ(same.forward_scratch, expected.forward_scratch);
}

TEST(StageCostsTest, TheScratchOfAnInputGradientIsOfLayersThatComputeIt) {
  ModelCosts costs;
  costs.layers.resize(2);
  for (LayerCost& layer : costs.layers) {
    layer.parameters = 1;
    layer.input_bytes = layer.output_bytes = 64;
    layer.backward_scratch = 128;
  }
  const int64_t usual = SumLayers(costs, 0, 2).backward_peak;
  costs.layers[0].input_grad_scratch = 1024;
  EXPECT_EQ(SumLayers(costs, 0, 2).backward_peak, usual) << "the data get no gradient";
  costs.layers[1].input_grad_scratch = 1024;
  EXPECT_EQ(SumLayers(costs, 0, 2).backward_peak, usual + 1024 - 128);
  costs.layers[1].input_grad_scratch = 100;
  EXPECT_EQ(SumLayers(costs, 0, 2).backward_peak, usual) << "the weight's gradient needs more";
}

/// A stage before the job's first layer that learns has no graph, wherever it begins, and the first
/// one that learns gives no gradient of its input.
TEST(StageCostsTest, NothingGoesBackwardBeforeTheFirstLayerThatLearns) {
  ModelCosts costs;
  costs.layers.resize(3);
  for (LayerCost& layer : costs.layers) {
    layer.input_bytes = layer.output_bytes = 64;
    layer.kept_bytes = 1024;
    layer.input_grad.flops = 10;
  }
  costs.layers[2].parameters = 1;
  const StageCost frozen = SumLayers(costs, 1, 2), learning = SumLayers(costs, 2, 3);
  EXPECT_EQ(frozen.kept_bytes, 64) << "the input";
  EXPECT_EQ(frozen.input_grad.flops, 0);
  EXPECT_EQ(learning.kept_bytes, 64 + 1024);
  EXPECT_EQ(learning.input_grad.flops, 0);
  costs.layers[0].parameters = 1;
  EXPECT_EQ(SumLayers(costs, 1, 2).kept_bytes, 64 + 1024);
  EXPECT_EQ(SumLayers(costs, 1, 2).input_grad.flops, 10);
}

/// The forward of a head in chunks does the work of its backward, or where it is recomputed the
/// backward does. Nothing of the size of the logits is kept.
TEST(StageCostsTest, AHeadInChunksDoesItsBackwardInTheForward) {
  const Job job = JobOf({Make("Linear", {16, 32}), Make("Linear", {32, 1000})}, {64, 16});
  const ModelCosts whole = Costs(job);
  const WithRowsOfChunk rows(100);  // of 512
  const ModelCosts chunks = Costs(job);
  EXPECT_EQ(whole.chunk_rows, 0);
  EXPECT_EQ(chunks.chunk_rows, 100);
  const StageCost one = SumLayers(whole, 1, 2), other = SumLayers(chunks, 1, 2);
  EXPECT_EQ(other.work().flops, one.work().flops);
  EXPECT_EQ(other.forward.flops, one.work().flops);
  EXPECT_EQ(other.backward_seconds() + other.input_grad.flops + other.weight_grad.flops, 0);
  EXPECT_GT(other.work().bytes, one.work().bytes) << "each chunk reads the weights";
  const int64_t input = AllocatedBytes(4 * 512 * 32), logits = AllocatedBytes(4 * 512 * 1000);
  EXPECT_EQ(other.kept_bytes, 2 * input) << "which arrived, and its gradient";
  EXPECT_EQ(other.deferred_bytes, input);
  EXPECT_LT(other.forward_peak + other.backward_peak, logits);
  const StageCost again = SumLayers(chunks, 1, 2, std::vector{-1, 0});
  EXPECT_EQ(again.work().flops, other.work().flops + again.recompute.flops);
  EXPECT_EQ(again.forward.flops, again.recompute.flops);
  EXPECT_GT(again.backward_peak, other.backward_peak) << "the chunks are computed then";
}

/// On one stage the parts of a layer keep and compute what the whole layer does. The input of a
/// Residual passes along with its parts and is counted once.
TEST(StageCostsTest, OfPartsAreThoseOfTheWhole) {
  const LayerSpec wide = Make("Linear", {64, 256}), narrow = Make("Linear", {256, 64});
  const LayerSpec norm = Make("LayerNorm", {64}), square = Make("Linear", {64, 64});
  const LayerSpec relu = Make("ReLU"), tanh = Make("Tanh");
  for (const auto& body : {std::vector{norm, wide, relu, narrow, tanh, square},
                           std::vector{wide, relu, narrow}, std::vector{tanh, square, norm},
                           std::vector{relu, tanh}, std::vector{Make("Identity"), square}}) {
    for (const char* type : {"Residual", "Sequential"}) {
      const LayerSpec whole = MakeLayer(type, {}, {}, body, "net.lua:3");
      const Job job = JobOf({Make("Linear", {32, 64}), whole, Make("Linear", {64, 10})}, {32});
      Job in_parts = job;
      in_parts.layers = InParts(job.layers, [](int) { return true; });
      const auto size = static_cast<int>(in_parts.layers.size());
      ASSERT_EQ(size, 2 + std::ssize(body));
      const StageCost expected = SumLayers(Costs(job), 0, 3);
      const StageCost sum = SumLayers(Costs(in_parts), 0, size);
      EXPECT_EQ(sum.work().flops, expected.work().flops);
      EXPECT_EQ(sum.work().bytes, expected.work().bytes);
      EXPECT_EQ(sum.kept_bytes, expected.kept_bytes) << whole.ToString();
      EXPECT_EQ(sum.deferred_bytes, expected.deferred_bytes) << whole.ToString();
      EXPECT_EQ(sum.parameters, expected.parameters);
      EXPECT_EQ(sum.weight_bytes, expected.weight_bytes);
    }
  }
}

}  // namespace
}  // namespace strata
