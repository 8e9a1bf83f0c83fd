#include "engine/layers/layer_types.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "engine/layers/own_type.h"
#include "engine/layers/testing_script.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsSupersetOf;
using testing::StartsWith;

LayerSpec Scripted(const std::string& type, const std::string& where) {
  LayerSpec spec;
  spec.type = type;
  spec.where = where;
  spec.scripted = true;
  spec.forward = Function(where);
  return spec;
}

/// The shapes of the AlexNet of DeepSpeed's pipeline example.
std::vector<LayerSpec> AlexNet() {
  return {Layer("Conv2d", {3, 64}, {{"kernel_size", 11}, {"stride", 4}, {"padding", 2}}),
          Layer("ReLU", {}, {{"inplace", true}}),
          Layer("MaxPool2d", {3}, {{"stride", 2}}),
          Layer("Conv2d", {64, 192}, {{"kernel_size", 5}, {"padding", 2}}),
          Layer("ReLU"),
          Layer("MaxPool2d", {3}, {{"stride", 2}}),
          Layer("Conv2d", {192, 384}, {{"kernel_size", 3}, {"padding", 1}}),
          Layer("ReLU"),
          Layer("Conv2d", {384, 256}, {{"kernel_size", 3}, {"padding", 1}}),
          Layer("ReLU"),
          Layer("Conv2d", {256, 256}, {{"kernel_size", 3}, {"padding", 1}}),
          Layer("ReLU"),
          Layer("MaxPool2d", {3}, {{"stride", 2}}),
          Layer("AdaptiveAvgPool2d", {Ints({6, 6})}),
          Layer("Flatten"),
          Layer("Dropout"),
          Layer("Linear", {9216, 4096}),
          Layer("ReLU"),
          Layer("Dropout"),
          Layer("Linear", {4096, 4096}),
          Layer("ReLU"),
          Layer("Linear", {4096, 10})};
}

TEST(Layers, AlexNetHasItsParameters) {
  std::vector<int64_t> counts;
  for (const LayerSpec& layer : AlexNet()) counts.push_back(CountParameters(layer));
  EXPECT_THAT(counts, ElementsAre(23296, 0, 0, 307392, 0, 0, 663936, 0, 884992, 0, 590080, 0, 0, 0,
                                  0, 0, 37752832, 0, 0, 16781312, 0, 40970));
}

TEST(Layers, AlexNetHasItsShapes) {
  const auto outputs = InferLayers(AlexNet(), {{{8, 3, 224, 224}, DType::kFloat32}}, nullptr);
  ASSERT_EQ(outputs.size(), 22u);
  EXPECT_EQ(ToString(outputs[0]), "float32 (8, 64, 55, 55)");
  EXPECT_EQ(ToString(outputs[2]), "float32 (8, 64, 27, 27)");
  EXPECT_EQ(ToString(outputs[13]), "float32 (8, 256, 6, 6)");
  EXPECT_EQ(ToString(outputs[14]), "float32 (8, 9216)");
  EXPECT_EQ(ToString(outputs[21]), "float32 (8, 10)");
}

// ---- the table ----

TEST(LayerTypes, HaveNamesOfTheirOwnAndLossesAreLast) {
  const std::vector<std::string> names = LayerTypeNames();
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  EXPECT_TRUE(std::ranges::is_partitioned(
      names, [](const std::string& name) { return !name.ends_with("Loss"); }));
  // Signatures.LayersTakePyTorchsArguments expects PyTorch's. These are not PyTorch's.
  EXPECT_THAT(names, IsSupersetOf({"ColumnParallelLinear", "RowParallelLinear", "Residual",
                                   "VocabParallelEmbedding", "ParallelCrossEntropyLoss"}));
}

TEST(LayerTypes, AreFoundByTheirExactName) {
  for (const std::string& name : LayerTypeNames()) {
    ASSERT_NE(FindLayerType(name), nullptr) << name;
    EXPECT_EQ(FindLayerType(name)->name, name);
    EXPECT_EQ(FindLayerType(name)->is_loss, name.ends_with("Loss"));
  }
  EXPECT_EQ(FindLayerType("linear"), nullptr);
  EXPECT_EQ(FindLayerType(""), nullptr);
}

TEST(LayerTypes, EveryFieldHasHelp) {
  for (const std::string& name : LayerTypeNames()) {
    const LayerType& type = *FindLayerType(name);
    EXPECT_FALSE(type.help.empty()) << name;
    EXPECT_FALSE(type.shapes.empty()) << name;
    for (const Field& field : type.fields) {
      EXPECT_TRUE(!field.help.empty() || !field.refused.empty()) << name << "." << field.name;
    }
  }
}

TEST(LayerTypes, AttentionDeclaresWhatItKeepsOfAToken) {
  for (const LayerType& type : LayerTypes()) {
    const bool shares_heads = std::ranges::find(type.splits, "heads") != type.splits.end();
    const bool counts_its_parts = type.name == "Transformer";
    EXPECT_EQ(type.kept_of_token || counts_its_parts, shares_heads) << type.name;
  }
  const Value::Map causal = {{"causal", true}};
  const LayerSpec grouped =
      MakeLayer("GroupedQueryAttention", {16, 4}, {{"num_kv_heads", 2}}, {}, "");
  EXPECT_EQ(KeptTokenBytes(grouped, 1, DType::kFloat32), 2 * 8 * 4);
  const LayerSpec layer = MakeLayer("TransformerDecoderLayer", {12, 3}, causal, {}, "");
  const LayerSpec stack = MakeLayer("TransformerDecoder", {}, {{"num_layers", 5}}, {layer}, "");
  EXPECT_EQ(KeptTokenBytes(stack, 3, DType::kBFloat16), 5 * (4 * 12 / 3) * 2);
  const Value::Map stacks = {
      {"num_encoder_layers", 2}, {"num_decoder_layers", 1}, {"dtype", "float32"}};
  const LayerSpec whole = MakeLayer("Transformer", {12, 3}, stacks, {}, "");
  EXPECT_EQ(KeptTokenBytes(whole, 1, DType::kBFloat16), (2 * 2 * 12 + 4 * 12) * 4)
      << "its type is that of the layers in it";
}

TEST(LayerHelp, ShowsCallHelpAndFields) {
  EXPECT_EQ(LayerHelp(*FindLayerType("Dropout")),
            "nn.Dropout{}: in training sets random elements to 0 and scales the rest by 1 / (1 - "
            "p)\n"
            "shapes: (...) -> (...)\n"
            "name     help (takes; default)\n"
            "p        share of elements set to 0 (a number, at least 0, at most 1; default\n"
            "         0.5)\n"
            "inplace  may overwrite its input (true or false; default false)\n"
            "name     the layer's path; its index when left out (a string; default \"\")\n"
            "dtype    type of its parameters and of what it computes; none = the job's (a\n"
            "         dtype such as \"float32\", or none; default none)\n");
  EXPECT_THAT(LayerHelp(*FindLayerType("Linear")),
              StartsWith("nn.Linear{in_features, out_features}: "));
  EXPECT_THAT(LayerHelp(*FindLayerType("Residual")), StartsWith("nn.Residual{layer, ...}: "));
}

// ---- constructors ----

TEST(MakeLayer, CompletesTheArguments) {
  const LayerSpec conv = MakeLayer("Conv2d", {3, 64}, {{"kernel_size", 11}}, {}, "net.lua:4");
  EXPECT_EQ(conv.type, "Conv2d");
  EXPECT_EQ(conv.where, "net.lua:4");
  EXPECT_EQ(conv.args["kernel_size"], Ints({11, 11}));
  EXPECT_EQ(conv.args["stride"], Ints({1, 1}));
  EXPECT_EQ(conv.args["padding"], Ints({0, 0}));
  EXPECT_EQ(conv.args["bias"], Value(true));
  EXPECT_EQ(conv.args["padding_mode"], Value("zeros"));
  EXPECT_FALSE(conv.args.Has("device"));
  EXPECT_FALSE(conv.args.Has("name"));
}

TEST(MakeLayer, CompletesWhatFollowsFromOtherArguments) {
  EXPECT_EQ(Layer("MaxPool2d", {3}).args["stride"], Ints({3, 3}));
  EXPECT_EQ(Layer("AvgPool2d", {Ints({2, 3})}).args["stride"], Ints({2, 3}));
  EXPECT_EQ(Layer("MaxPool2d", {3, 2}).args["stride"], Ints({2, 2}));
  EXPECT_EQ(Layer("Embedding", {10, 4, -1}).args["padding_idx"], Value(9));
  EXPECT_EQ(Layer("Embedding", {10, 4, 3}).args["padding_idx"], Value(3));
  EXPECT_TRUE(Layer("Embedding", {10, 4}).args["padding_idx"].is_null());
}

TEST(MakeLayer, TakesANameAsPath) {
  const LayerSpec named = Layer("Linear", {3, 4}, {{"name", "head"}});
  EXPECT_EQ(named.name, "head");
  EXPECT_EQ(LayerPath(named, 7), "head");
  EXPECT_EQ(LayerPath(Layer("Linear", {3, 4}), 7), "7");
}

TEST(MakeLayer, MomentumNoneIsThePlainAverage) {
  EXPECT_EQ(Layer("BatchNorm2d", {4}).args["momentum"], Value(0.1));
  EXPECT_TRUE(Layer("BatchNorm2d", {4}, {{"momentum", "none"}}).args["momentum"].is_null());
}

TEST(MakeLayer, HoldsLayers) {
  const LayerSpec block = Holding("Residual", {Layer("Linear", {4, 4}), Layer("ReLU")});
  ASSERT_EQ(block.children.size(), 2u);
  EXPECT_EQ(block.children[1].type, "ReLU");
}

struct RefusedCall {
  std::string type;
  Value::List positional;
  Value::Map named;
  std::string message;
};

RefusedCall Refused(std::string type, Value::List positional, Value::Map named,
                    std::string message) {
  return {std::move(type), std::move(positional), std::move(named), std::move(message)};
}

class RefusedCalls : public testing::TestWithParam<RefusedCall> {};

TEST_P(RefusedCalls, SayWhy) {
  const RefusedCall& call = GetParam();
  EXPECT_EQ(ErrorOf([&] { MakeLayer(call.type, call.positional, call.named, {}, "net.lua:4"); }),
            "net.lua:4: " + call.message);
}

INSTANTIATE_TEST_SUITE_P(
    MakeLayer, RefusedCalls,
    testing::Values(
        Refused("Linaer", {}, {}, "there is no layer \"Linaer\"; did you mean \"Linear\"?"),
        Refused("Quux", {}, {}, "there is no layer \"Quux\""),
        Refused("Linear", {64}, {},
                "Linear needs out_features: size of the last dim of the output (an integer, at "
                "least 1)"),
        Refused("Linear", {64, 0}, {},
                "Linear: out_features expects an integer, at least 1; got the number 0"),
        Refused("Linear", {64, 10}, {{"biass", false}},
                "Linear has no argument \"biass\"; did you mean \"bias\"?"),
        Refused("Linear", {64, 10}, {{"device", "cuda"}},
                "Linear does not take device: the job's device holds for all layers"),
        Refused("Linear", {64, 10}, {{"dtype", "int64"}},
                "Linear(64, 10, dtype=\"int64\"): dtype must be a floating-point type, such as "
                "\"float64\", got \"int64\""),
        Refused("Linear", {64, 10}, {{"split", "columns"}},
                "Linear: split expects one of \"column\", \"row\", or none; got the string "
                "\"columns\"; did you mean \"column\"?"),
        Refused("Conv1d", {4, 4, 3}, {{"split", "row"}},
                "Conv1d does not take split: the model axis shares Linear, Embedding, LayerNorm, "
                "SwiGLU, attention and Transformer layers"),
        Refused("Embedding", {10, 4}, {{"split", "row"}, {"max_norm", 1.0}},
                "Embedding(10, 4, max_norm=1, split=\"row\"): max_norm does not go with split"),
        Refused("Embedding", {10, 4}, {{"split", "row"}, {"scale_grad_by_freq", true}},
                "Embedding(10, 4, scale_grad_by_freq=true, split=\"row\"): scale_grad_by_freq does "
                "not go with split"),
        Refused("Linear", {64, 10}, {{"name", 3}},
                "Linear: name expects a string; got the number 3"),
        Refused("ReLU", {true, 1}, {},
                "ReLU takes at most 1 argument by position (inplace), got 2"),
        Refused("Conv2d", {3, 64, Ints({3, 3, 3})}, {},
                "Conv2d: kernel_size expects an integer or a list of 2 integers, at least 1; got "
                "the list {3, 3, 3}"),
        Refused("Conv2d", {3, 64, 3}, {{"padding", "sam"}},
                "Conv2d: padding expects an integer or a list of 2 integers, at least 0, or "
                "\"same\", \"valid\"; got the string \"sam\"; did you mean \"same\"?"),
        Refused("Conv2d", {3, 64, 3}, {{"groups", 2}},
                "Conv2d(3, 64, kernel_size=(3, 3), groups=2): in_channels 3 is not divisible by "
                "groups 2"),
        Refused("Conv2d", {4, 5, 3}, {{"groups", 4}},
                "Conv2d(4, 5, kernel_size=(3, 3), groups=4): out_channels 5 is not divisible by "
                "groups 4"),
        Refused("Conv1d", {3, 64, 3}, {{"padding", "same"}, {"stride", 2}},
                "Conv1d(3, 64, kernel_size=(3,), stride=(2,), padding=\"same\"): padding \"same\" "
                "needs stride 1"),
        Refused("ConvTranspose2d", {3, 64, 3}, {{"output_padding", 1}},
                "ConvTranspose2d(3, 64, kernel_size=(3, 3), output_padding=(1, 1)): output_padding "
                "must be smaller than stride or dilation"),
        Refused("ConvTranspose2d", {3, 64, 3}, {{"padding_mode", "reflect"}},
                "ConvTranspose2d: padding_mode expects \"zeros\"; got the string \"reflect\""),
        Refused("Embedding", {10, 4, 10}, {},
                "Embedding(10, 4, padding_idx=10): padding_idx 10 is outside of num_embeddings 10"),
        Refused(
            "Embedding", {10, 4}, {{"sparse", true}},
            "Embedding does not take sparse: gradients live in dense buffers that the engine owns"),
        Refused("GroupNorm", {3, 4}, {},
                "GroupNorm(3, 4): num_channels 4 is not divisible by num_groups 3"),
        Refused("MaxPool2d", {3}, {{"padding", 2}},
                "MaxPool2d(kernel_size=(3, 3), stride=(3, 3), padding=(2, 2)): padding 2 is more "
                "than half of kernel_size 3"),
        Refused("MaxPool2d", {3}, {{"return_indices", true}},
                "MaxPool2d: return_indices = true is not built yet: a layer with two outputs comes "
                "later; this build has false"),
        Refused("Unflatten", {1, Ints({-1, -1})}, {},
                "Unflatten(1, unflattened_size=(-1, -1)): unflattened_size has more than one -1"),
        Refused("Unflatten", {1, Ints({})}, {},
                "Unflatten(1, unflattened_size=()): unflattened_size is empty"),
        Refused("MultiheadAttention", {10, 3}, {},
                "MultiheadAttention(10, 3): embed_dim 10 is not divisible by num_heads 3"),
        Refused("TransformerDecoderLayer", {10, 3}, {},
                "TransformerDecoderLayer(10, 3): d_model 10 is not divisible by nhead 3"),
        Refused("TransformerEncoderLayer", {8, 2}, {{"activation", "tanh"}},
                "TransformerEncoderLayer: activation expects one of \"relu\", \"gelu\"; got the "
                "string \"tanh\""),
        Refused("CrossEntropyLoss", {}, {{"reduction", "none"}},
                "CrossEntropyLoss: reduction expects one of \"mean\", \"sum\"; got the string "
                "\"none\""),
        Refused("CrossEntropyLoss", {}, {{"size_average", true}},
                "CrossEntropyLoss does not take size_average: use reduction"),
        Refused("Sequential", {}, {}, "Sequential(): needs at least one layer"),
        Refused("Identity", {3}, {}, "Identity takes at most 0 arguments by position, got 1")));

TEST(MakeLayer, RefusesLayersWhereItTakesValues) {
  EXPECT_EQ(ErrorOf([] { MakeLayer("ReLU", {}, {}, {Layer("Tanh")}, "net.lua:4"); }),
            "net.lua:4: ReLU(): takes values, not layers; got Tanh()");
}

TEST(MakeLayer, RefusesALossAmongLayers) {
  EXPECT_EQ(ErrorOf([] { MakeLayer("Sequential", {}, {}, {Layer("MSELoss")}, "net.lua:4"); }),
            "net.lua:4: Sequential(MSELoss()): MSELoss is a loss, not a layer");
}

// ---- texts ----

TEST(LayerSpec, PrintsAsInPyTorch) {
  EXPECT_EQ(Layer("Linear", {64, 10}).ToString(), "Linear(64, 10)");
  EXPECT_EQ(Layer("Linear", {64, 10, false}).ToString(), "Linear(64, 10, bias=false)");
  EXPECT_EQ(Layer("Conv2d", {3, 64, 11, 4, 2}).ToString(),
            "Conv2d(3, 64, kernel_size=(11, 11), stride=(4, 4), padding=(2, 2))");
  EXPECT_EQ(Layer("ReLU").ToString(), "ReLU()");
  EXPECT_EQ(Layer("AdaptiveAvgPool2d", {Value::List{Value(), 7}}).ToString(),
            "AdaptiveAvgPool2d(output_size=(None, 7))");
  EXPECT_EQ(Layer("LayerNorm", {512}).ToString(), "LayerNorm(normalized_shape=(512,))");
  EXPECT_EQ(Layer("GELU", {"tanh"}).ToString(), "GELU(approximate=\"tanh\")");
  EXPECT_EQ(Layer("MultiheadAttention", {16, 4}).ToString(), "MultiheadAttention(16, 4)");
  EXPECT_EQ(Layer("TransformerDecoderLayer", {16, 4}, {{"causal", true}}).ToString(),
            "TransformerDecoderLayer(16, 4, causal=true)");
}

TEST(LayerSpec, PrintsWhatItHolds) {
  EXPECT_EQ(Holding("Sequential", {Layer("Linear", {4, 4}), Layer("ReLU")}).ToString(),
            "Sequential(Linear(4, 4), ReLU())");
  const LayerSpec many = Holding("Sequential", std::vector<LayerSpec>(12, Layer("ReLU")));
  EXPECT_EQ(many.ToString(),
            "Sequential(ReLU(), ReLU(), ReLU(), ReLU(), ReLU(), ReLU(), ReLU(), ReLU(), ... 12 "
            "layers)");
}

TEST(LayerSpec, PrintsTheScriptsLayers) {
  EXPECT_EQ(Scripted("function", "net.lua:7").ToString(), "function(net.lua:7)");
  LayerSpec rms = Scripted("RMS", "net.lua:7");
  rms.args = Ints({512});
  EXPECT_EQ(rms.ToString(), "RMS(512)");
  rms.args = Value::MakeMap({{"1", 512}, {"eps", 0.5}});
  EXPECT_EQ(rms.ToString(), "RMS(512, eps=0.5)");
}

TEST(LayerSpec, ValuesTellLayersApart) {
  const LayerSpec linear = Layer("Linear", {64, 10});
  EXPECT_EQ(linear.ToValue(), Layer("Linear", {64, 10}).ToValue());
  EXPECT_EQ(FirstDifference(linear.ToValue(), Layer("Linear", {64, 11}).ToValue()),
            "args.out_features: 10 against 11");
  LayerSpec frozen = linear;
  frozen.frozen = true;
  EXPECT_NE(linear.ToValue(), frozen.ToValue());
  EXPECT_NE(linear.ToValue(), Layer("Linear", {64, 10}, {{"name", "head"}}).ToValue());
  EXPECT_NE(Holding("Sequential", {Layer("ReLU")}).ToValue(),
            Holding("Sequential", {Layer("GELU")}).ToValue());
}

TEST(LayerSpec, ValuesOfScriptedLayersHoldTheirFunctions) {
  const LayerSpec a = Scripted("function", "net.lua:7");
  LayerSpec b = a;
  b.forward.id = 99;  // the same function has another id in another state
  EXPECT_EQ(a.ToValue(), b.ToValue());
  b.forward.digest = "other";
  EXPECT_NE(a.ToValue(), b.ToValue());
  LayerSpec c = a;
  c.script_parameters = {{.name = "weight", .shape = {4}}};
  EXPECT_NE(a.ToValue(), c.ToValue());
}

TEST(LayerSpec, PositionDoesNotMatterToTheValue) {
  EXPECT_EQ(MakeLayer("ReLU", {}, {}, {}, "a.lua:1").ToValue(),
            MakeLayer("ReLU", {}, {}, {}, "b.lua:2").ToValue());
}

// ---- parameters ----

std::vector<std::string> Names(const LayerSpec& spec) {
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : ParametersOf(spec)) names.push_back(parameter.name);
  return names;
}

TEST(ParametersOf, ContainersPrefixTheirs) {
  const LayerSpec block = Holding("Sequential", {Layer("Linear", {4, 4}), Layer("ReLU"),
                                                 Layer("Linear", {4, 2, false}, {{"name", "out"}}),
                                                 Holding("Residual", {Layer("LayerNorm", {2})})});
  EXPECT_THAT(Names(block),
              ElementsAre("0.weight", "0.bias", "out.weight", "3.0.weight", "3.0.bias"));
  EXPECT_EQ(CountParameters(block), 4 * 4 + 4 + 4 * 2 + 2 + 2);
}

TEST(ParametersOf, BuffersAreNoParameters) {
  const LayerSpec norm = Layer("BatchNorm2d", {8});
  EXPECT_THAT(Names(norm),
              ElementsAre("weight", "bias", "running_mean", "running_var", "num_batches_tracked"));
  EXPECT_EQ(CountParameters(norm), 16);
  EXPECT_EQ(ParametersOf(norm)[4].dtype, DType::kInt64);
}

TEST(HasMaxNorm, GoesByTheArgumentOfAnyType) {
  LayerSpec table = Layer("Embedding", {10, 4});
  EXPECT_FALSE(HasMaxNorm(table));
  table.args.Set("max_norm", 1.0);
  EXPECT_TRUE(HasMaxNorm(table));
  table.type = "TableOfTokens";
  EXPECT_TRUE(HasMaxNorm(table));
  LayerSpec outer = Layer("Tanh");
  outer.children = {table};
  EXPECT_TRUE(HasMaxNorm(outer));
  table.scripted = true;
  EXPECT_FALSE(HasMaxNorm(table)) << "its arguments are the script's own";
}

TEST(OwnTypes, ParametersHaveThem) {
  const LayerSpec norm = Layer("BatchNorm2d", {8}, {{"dtype", "double"}});
  EXPECT_EQ(OwnType(norm), DType::kFloat64);
  std::vector<DType> types;
  for (const ParameterSpec& parameter : ParametersOf(norm)) types.push_back(parameter.dtype);
  EXPECT_THAT(types, ElementsAre(DType::kFloat64, DType::kFloat64, DType::kFloat64, DType::kFloat64,
                                 DType::kInt64));
  EXPECT_EQ(OwnType(Layer("Linear", {4, 4})), std::nullopt);
  EXPECT_EQ(norm.ToString(), "BatchNorm2d(8, dtype=\"float64\")");
}

TEST(OwnTypes, OutputsHaveTheTypeOfTheFirstFloatingInput) {
  const LayerSpec linear = Layer("Linear", {4, 2}, {{"dtype", "float64"}});
  for (const DType type : {DType::kFloat32, DType::kFloat64, DType::kBFloat16}) {
    EXPECT_EQ(InferLayer(linear, {{{8, 4}, type}}, nullptr), (TensorSpecs{{{8, 2}, type}}));
  }
  const LayerSpec words = Layer("Embedding", {10, 4}, {{"dtype", "float64"}});
  EXPECT_EQ(InferLayer(words, {{{8}, DType::kInt64}}, nullptr), (TensorSpecs{{{8, 4}}}));
}

TEST(OwnTypes, LayersWithoutParametersHaveThemToo) {
  const LayerSpec softmax = Layer("Softmax", {}, {{"dim", 1}, {"dtype", "float32"}});
  EXPECT_EQ(OwnType(softmax), DType::kFloat32);
  const TensorSpecs half = {{{8, 4}, DType::kBFloat16}};
  EXPECT_EQ(InferLayer(softmax, half, nullptr), half);
}

TEST(ParametersOf, ScriptedLayersHaveWhatTheirInitDeclared) {
  LayerSpec rms = Scripted("RMS", "net.lua:7");
  EXPECT_EQ(CountParameters(rms), 0);
  rms.script_parameters = {{.name = "weight", .shape = {512}},
                           {.name = "count", .shape = {}, .buffer = true}};
  EXPECT_EQ(CountParameters(rms), 512);
  EXPECT_EQ(ParametersOf(rms), rms.script_parameters);
}

RC_GTEST_PROP(ParametersOf, SequentialCountsWhatItsLayersCount, ()) {
  const auto sizes = *rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 50));
  std::vector<LayerSpec> layers = {Layer("ReLU")};
  int64_t count = 0;
  for (int size : sizes) {
    layers.push_back(Layer("Linear", {size, size + 1}));
    count += CountParameters(layers.back());
  }
  RC_ASSERT(CountParameters(Holding("Sequential", layers)) == count);
}

// ---- shapes ----

std::string InferError(const std::vector<LayerSpec>& layers, const TensorSpec& input) {
  return ErrorOf([&] { InferLayers(layers, {input}, nullptr); });
}

const TensorSpec kRows = {{8, 128}, DType::kFloat32};

TEST(InferLayers, NamesBothLayers) {
  EXPECT_EQ(InferError({Layer("Flatten"), Layer("Linear", {64, 10})}, kRows),
            "layer 1 Linear(64, 10) cannot take the output of layer 0 Flatten(): expects last dim "
            "64, got (8, 128)");
}

TEST(InferLayers, NamesPlaceAndName) {
  const LayerSpec head = MakeLayer("Linear", {64, 10}, {{"name", "head"}}, {}, "net.lua:4");
  EXPECT_EQ(InferError({Layer("ReLU"), head}, kRows),
            "net.lua:4: layer 1 \"head\" Linear(64, 10) cannot take the output of layer 0 ReLU(): "
            "expects last dim 64, got (8, 128)");
}

TEST(InferLayers, NamesTheInput) {
  EXPECT_EQ(InferError({Layer("Linear", {64, 10})}, kRows),
            "layer 0 Linear(64, 10) cannot take the input: expects last dim 64, got (8, 128)");
}

TEST(InferLayers, SpeaksOfTypesToo) {
  EXPECT_EQ(InferError({Layer("Linear", {64, 10})}, {{8, 64}, DType::kInt64}),
            "layer 0 Linear(64, 10) cannot take the input: expects float32, got int64 (8, 64)");
  EXPECT_EQ(InferError({Layer("Embedding", {64, 10})}, kRows),
            "layer 0 Embedding(64, 10) cannot take the input: expects int64 or int32 indices, got "
            "float32 (8, 128)");
  EXPECT_EQ(InferError({Layer("ReLU")}, {{8, 64}, DType::kBool}),
            "layer 0 ReLU() cannot take the input: expects floating numbers, got bool (8, 64)");
}

TEST(InferLayers, NamesTheInnerLayers) {
  const LayerSpec block =
      Holding("Sequential", {Layer("Linear", {128, 32}), Layer("ReLU"), Layer("Linear", {64, 10})});
  EXPECT_EQ(InferError({Layer("ReLU"), block}, kRows),
            "layer 1 Sequential(Linear(128, 32), ReLU(), Linear(64, 10)): its layer 2 Linear(64, "
            "10) cannot take the output of its layer 1 ReLU(): expects last dim 64, got (8, 32)");
}

TEST(InferLayers, TheFirstInnerLayerTakesTheOutersInput) {
  const LayerSpec block = Holding("Sequential", {Layer("Linear", {64, 10})});
  EXPECT_EQ(InferError({Layer("ReLU"), block}, kRows),
            "layer 1 Sequential(Linear(64, 10)) cannot take the output of layer 0 ReLU(): its "
            "layer 0 Linear(64, 10) expects last dim 64, got (8, 128)");
}

TEST(InferLayers, ResidualKeepsTheShape) {
  const LayerSpec keeps = Holding("Residual", {Layer("Linear", {128, 128}), Layer("ReLU")});
  EXPECT_EQ(InferLayers({keeps}, {kRows}, nullptr)[0], TensorSpecs{kRows});
  EXPECT_EQ(InferError({Holding("Residual", {Layer("Linear", {128, 1})})}, kRows),
            "layer 0 Residual(Linear(128, 1)) cannot take the input: expects its body to keep "
            "float32 (8, 128), got float32 (8, 1)");
}

TEST(InferLayers, LayersOfOneTensorRefuseTwo) {
  EXPECT_EQ(ErrorOf([] {
              InferLayers({Layer("ReLU")}, {kRows, kRows}, nullptr);
            }),
            "layer 0 ReLU() cannot take the input: expects one tensor, got float32 (8, 128) and "
            "float32 (8, 128)");
}

TEST(InferLayers, OfNoLayersIsNothing) { EXPECT_TRUE(InferLayers({}, {kRows}, nullptr).empty()); }

/// A Script that gives fixed shapes for scripted layers.
struct Shapes : AnsweringScript {
  TensorSpecs InferShapes(const LayerSpec& layer, const TensorSpecs& inputs) override {
    inferred = layer.ToString();
    if (fails) throw ConfigError("net.lua:8: no such operator");
    TensorSpecs outputs = inputs;
    outputs[0].shape.back() = 64;
    return outputs;
  }

  std::string inferred;
  bool fails = false;
};

TEST(InferLayers, AsksTheScriptForItsLayers) {
  Shapes script;
  const std::vector<LayerSpec> layers = {Holding("Sequential", {Scripted("function", "net.lua:7")}),
                                         Layer("Linear", {64, 10})};
  const auto outputs = InferLayers(layers, {kRows}, &script);
  EXPECT_EQ(ToString(outputs[1]), "float32 (8, 10)");
  EXPECT_EQ(script.inferred, "function(net.lua:7)");
}

TEST(InferLayers, NamesTheScriptsLayerThatFails) {
  Shapes script;
  script.fails = true;
  const LayerSpec layer = Scripted("function", "net.lua:7");
  EXPECT_EQ(ErrorOf([&] {
              InferLayers({Layer("ReLU"), layer}, {kRows}, &script);
            }),
            "net.lua:7: layer 1 function(net.lua:7): net.lua:8: no such operator");
  EXPECT_EQ(
      ErrorOf([&] { InferLayers({Holding("Sequential", {layer})}, {kRows}, &script); }),
      "layer 0 Sequential(function(net.lua:7)): its layer 0 function(net.lua:7): net.lua:8: no "
      "such operator");
}

RC_GTEST_PROP(InferLayers, EachLayersOutputIsTheNextOnesInput, ()) {
  const auto sizes =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 50)));
  std::vector<LayerSpec> layers;
  for (size_t i = 0; i + 1 < sizes.size(); ++i) {
    layers.push_back(Layer("Linear", {sizes[i], sizes[i + 1]}));
  }
  const TensorSpec input = {{4, sizes[0]}, DType::kFloat32};
  const auto outputs = InferLayers(layers, {input}, nullptr);
  RC_ASSERT(outputs.size() == layers.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    RC_ASSERT(outputs[i] == TensorSpecs({{{4, sizes[i + 1]}, DType::kFloat32}}));
  }
}

RC_GTEST_PROP(InferLayers, FlattenUndoesUnflatten, ()) {
  const auto sizes =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int64_t>>(rc::gen::inRange<int64_t>(1, 6)));
  int64_t product = 1;
  for (int64_t size : sizes) product = std::min<int64_t>(product * size, kLargestSize);
  RC_PRE(product < kLargestSize);
  const TensorSpec input = {{3, product, 2}, DType::kFloat32};
  const auto count = static_cast<int64_t>(sizes.size());
  const std::vector<LayerSpec> layers = {Layer("Unflatten", {1, Ints(sizes)}),
                                         Layer("Flatten", {1, count})};
  RC_ASSERT(InferLayers(layers, {input}, nullptr)[1] == TensorSpecs{input});
}

TEST(InferLayers, RefusesWhatNoMachineHolds) {
  EXPECT_EQ(ErrorOf([] {
              Layer("Linear", {1 << 30, 1 << 30});
            }),
            "Linear(1073741824, 1073741824): weight would be (1073741824, 1073741824), more than "
            "any machine holds");
  EXPECT_EQ(ErrorOf([] {
              Layer("Linear", {int64_t{1} << 40, 4});
            }),
            "Linear: in_features expects an integer, at least 1; got the number 1099511627776; the "
            "largest is 2147483647");
  const TensorSpec large = {{1 << 20, 1 << 20, 4}, DType::kFloat32};
  EXPECT_EQ(InferError({Layer("Flatten", {0})}, large),
            "layer 0 Flatten(start_dim=0) cannot take the input: would give float32 "
            "(4398046511104,), more than any machine holds");
  const TensorSpec row = {{1, 1, 1, 2147483647}, DType::kFloat32};
  const LayerSpec wide =
      Layer("ConvTranspose2d", {1, 1, Ints({1, 2147483647})}, {{"stride", Ints({1, 2147483647})}});
  EXPECT_THAT(InferError({wide}, row), HasSubstr("more than any machine holds"));
}

// ---- attention and decoders with several inputs ----

TEST(InferLayers, DecodersTakeAMemory) {
  const LayerSpec decoder = Layer("TransformerDecoderLayer", {16, 4});
  const TensorSpec target = {{5, 2, 16}, DType::kFloat32}, memory = {{7, 2, 16}, DType::kFloat32};
  EXPECT_EQ(InferLayer(decoder, {target}, nullptr), TensorSpecs{target});
  EXPECT_EQ(InferLayer(decoder, {target, memory}, nullptr), TensorSpecs{target});
  EXPECT_EQ(
      ErrorOf([&] {
        InferLayer(decoder, {target, {{7, 3, 16}, DType::kFloat32}}, nullptr);
      }),
      "expects target and memory of one batch, got float32 (5, 2, 16) and float32 (7, 3, 16)");
  EXPECT_EQ(ErrorOf([&] {
              InferLayer(decoder, {{{5, 16}, DType::kFloat32}}, nullptr);
            }),
            "expects (sequence, batch, 16), got (5, 16)");
  EXPECT_EQ(ErrorOf([&] {
              InferLayer(Layer("TransformerEncoderLayer", {16, 4}, {{"batch_first", true}}),
                         {{{5, 2, 8}, DType::kFloat32}}, nullptr);
            }),
            "expects (batch, sequence, 16), got (5, 2, 8)");
}

TEST(InferLayers, AttentionTakesOneOrThree) {
  const LayerSpec attention = Layer("MultiheadAttention", {16, 4});
  const TensorSpec x = {{5, 2, 16}, DType::kFloat32};
  EXPECT_EQ(InferLayer(attention, {x}, nullptr), TensorSpecs{x});
  EXPECT_EQ(InferLayer(attention, {x, x, x}, nullptr), TensorSpecs{x});
  EXPECT_THAT(ErrorOf([&] {
                InferLayer(attention, {x, x}, nullptr);
              }),
              HasSubstr("expects one tensor, or query, key and value"));
}

}  // namespace
}  // namespace strata
