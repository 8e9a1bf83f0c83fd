#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/base/text.h"
#include "engine/layers/split.h"
#include "engine/layers/testing_spec.h"

namespace strata {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

LayerSpec Linear(int in, int out, const char* split) {
  return MakeLayer("Linear", {in, out}, {{"split", split}}, {}, "net.lua:4");
}

LayerSpec Encoder(const char* split, bool batch_first = true) {
  return Layer("TransformerEncoderLayer", {8, 4},
               {{"dim_feedforward", 12}, {"split", split}, {"batch_first", batch_first}});
}

std::string Show(ShardDim dim) { return dim ? std::to_string(*dim) : "whole"; }

/// How each layer takes its input and gives its output: "whole>-1" takes whole tensors and gives
/// parts of the last dim.
std::vector<std::string> Layouts(const std::vector<LayerSpec>& layers, bool loss = false) {
  std::vector<std::string> shown;
  for (const LayerSpec& layer : LayOut(layers, loss)) {
    shown.push_back(Show(layer.input_shard) + ">" + Show(layer.output_shard));
  }
  return shown;
}

// Shares

/// The shares of the layer's parameters as text: "weight 0/1" is shared along dim 0, in one block.
std::vector<std::string> Shares(const LayerSpec& spec) {
  std::vector<std::string> shown;
  for (const ParameterSpec& parameter : ParametersOf(spec)) {
    shown.push_back(parameter.share ? Str(parameter.name, " ", parameter.share->dim, "/",
                                          parameter.share->blocks)
                                    : parameter.name);
  }
  return shown;
}

TEST(Shares, OfEveryParameter) {
  EXPECT_THAT(Shares(Layer("Linear", {4, 6})), ElementsAre("weight", "bias"));
  EXPECT_THAT(Shares(Linear(4, 6, "column")), ElementsAre("weight 0/1", "bias 0/1"));
  EXPECT_THAT(Shares(Linear(4, 6, "row")), ElementsAre("weight 1/1", "bias"));
  EXPECT_THAT(Shares(Layer("Embedding", {4, 6}, {{"split", "row"}})), ElementsAre("weight 0/1"));
  EXPECT_THAT(Shares(Layer("Embedding", {4, 6}, {{"split", "column"}})), ElementsAre("weight 1/1"));
  EXPECT_THAT(Shares(Layer("MultiheadAttention", {8, 4}, {{"split", "heads"}})),
              ElementsAre("in_proj_weight 0/3", "in_proj_bias 0/3", "out_proj.weight 1/1",
                          "out_proj.bias"));
  EXPECT_THAT(
      Shares(Layer("MultiheadAttention", {8, 4},
                   {{"split", "heads"}, {"kdim", 3}, {"add_bias_kv", true}})),
      ElementsAre("q_proj_weight 0/1", "k_proj_weight 0/1", "v_proj_weight 0/1", "in_proj_bias 0/3",
                  "bias_k 2/1", "bias_v 2/1", "out_proj.weight 1/1", "out_proj.bias"));
}

TEST(Shares, TransformerLayersAreSharedByThemselves) {
  const std::vector<std::string> shared = {"self_attn.in_proj_weight 0/3",
                                           "self_attn.in_proj_bias 0/3",
                                           "self_attn.out_proj.weight 1/1",
                                           "self_attn.out_proj.bias",
                                           "linear1.weight 0/1",
                                           "linear1.bias 0/1",
                                           "linear2.weight 1/1",
                                           "linear2.bias",
                                           "norm1.weight",
                                           "norm1.bias",
                                           "norm2.weight",
                                           "norm2.bias"};
  EXPECT_EQ(Shares(Layer("TransformerEncoderLayer", {8, 4})), shared);
  EXPECT_EQ(Shares(Encoder("sequence")), shared);
  const LayerSpec whole = Layer("Transformer", {8, 4, 1, 1}, {{"split", "none"}});
  for (const LayerSpec& layer : {Encoder("none"), whole}) {
    for (const std::string& name : Shares(layer)) {
      EXPECT_EQ(name.find(' '), std::string::npos) << name;
    }
  }
  EXPECT_EQ(Shares(Layer("Transformer", {8, 4, 1, 1})).front(),
            "encoder.layers.0.self_attn.in_proj_weight 0/3");
}

// Megatron-LM's names

TEST(ParallelNames, AreLayersWithASplit) {
  const auto make = [](const char* type, Value::List positional, Value::Map named = {}) {
    return MakeLayer(type, positional, named, {}, "net.lua:4");
  };
  const Value bias = false, whole = true, padding = 3, name = "up";
  const std::pair<LayerSpec, LayerSpec> pairs[] = {
      {make("ColumnParallelLinear", {4, 6}), Linear(4, 6, "column")},
      {make("RowParallelLinear", {4, 6}), Linear(4, 6, "row")},
      {make("ColumnParallelLinear", {4, 6, bias}, {{"gather_output", whole}, {"name", name}}),
       make("Linear", {4, 6, bias},
            {{"split", "column"}, {"gather_output", whole}, {"name", name}})},
      {make("VocabParallelEmbedding", {12, 4}, {{"padding_idx", padding}}),
       make("Embedding", {12, 4, padding}, {{"split", "row"}})},
      {make("ParallelCrossEntropyLoss", {}, {{"ignore_index", padding}}),
       make("CrossEntropyLoss", {}, {{"ignore_index", padding}})}};
  for (const auto& [parallel, split] : pairs) {
    EXPECT_EQ(parallel.ToValue(), split.ToValue());
    EXPECT_EQ(parallel.ToValue().ToJson(), split.ToValue().ToJson());
  }
}

TEST(ParallelNames, TakeWhatBelongsToThem) {
  const auto error = [](const char* type, Value::Map named, Value::List positional = {4, 6}) {
    return ErrorOf([&] { MakeLayer(type, positional, named, {}, "net.lua:4"); });
  };
  EXPECT_THAT(error("ColumnParallelLinear", {{"split", "row"}}),
              HasSubstr("net.lua:4: ColumnParallelLinear: split expects \"column\""));
  EXPECT_THAT(error("ColumnParallelLinear", {{"split", "none"}}), HasSubstr("\"column\""));
  EXPECT_THAT(error("ColumnParallelLinear", {{"input_is_parallel", true}}),
              HasSubstr("input_is_parallel"));
  EXPECT_THAT(error("RowParallelLinear", {}, {4}), HasSubstr("RowParallelLinear"));
  EXPECT_THAT(error("RowParallelLinear", {{"gather_outptu", true}}), HasSubstr("gather_outptu"));
  EXPECT_THAT(error("Linear", {{"gather_output", true}}),
              HasSubstr("gather_output goes with split = \"column\""));
  EXPECT_THAT(error("Linear", {{"split", "column"}, {"input_is_parallel", true}}),
              HasSubstr("input_is_parallel goes with split = \"row\""));
  EXPECT_THAT(error("VocabParallelEmbedding", {{"max_norm", 1}}),
              HasSubstr("max_norm does not go with split"));
  EXPECT_THAT(error("ParallelCrossEntropyLoss", {{"label_smoothing", 0.1}}, {}),
              HasSubstr("it needs whole logits: use CrossEntropyLoss"));
}

TEST(ParallelNames, HaveHelp) {
  const std::string help = LayerHelp(*FindLayerType("RowParallelLinear"));
  EXPECT_THAT(help,
              HasSubstr("nn.RowParallelLinear{in_features, out_features}: a Linear of which"));
  EXPECT_THAT(help, HasSubstr("input_is_parallel"));
  EXPECT_THAT(help, Not(HasSubstr("gather_output")));
}

// Layouts

LayerSpec Column(Value gather_output) {
  return Layer("ColumnParallelLinear", {4, 6}, {{"gather_output", std::move(gather_output)}});
}

LayerSpec Row(Value input_is_parallel) {
  return Layer("RowParallelLinear", {6, 4}, {{"input_is_parallel", std::move(input_is_parallel)}});
}

TEST(LayOut, PartsCanBeRefused) {
  EXPECT_THAT(Layouts({Column({}), Row({})}), ElementsAre("whole>-1", "-1>whole"));
  EXPECT_THAT(Layouts({Column(false), Layer("ReLU"), Row(true)}),
              ElementsAre("whole>-1", "-1>-1", "-1>whole"));
  const std::vector<std::string> whole = {"whole>whole", "whole>whole"};
  EXPECT_EQ(Layouts({Column(true), Row({})}), whole);
  EXPECT_EQ(Layouts({Column({}), Row(false)}), whole);
  EXPECT_EQ(Layouts({Column(true), Row(false)}), whole);
  EXPECT_THAT(Layouts({Column(false)}, true), ElementsAre("whole>-1"));
  EXPECT_THAT(Layouts({Column(true)}, true), ElementsAre("whole>whole"));
}

TEST(LayOut, PartsCanBeInsistedOn) {
  const auto error = [](const std::vector<LayerSpec>& layers) {
    return ErrorOf([&] { Layouts(layers); });
  };
  const char* no_row = "gather_output = false, but the next layer is no RowParallelLinear";
  const char* no_column = "input_is_parallel = true, but the layer before is no";
  EXPECT_THAT(error({Column(false)}), HasSubstr(no_row));
  EXPECT_THAT(error({Column(false), Layer("Softmax", {1}), Row({})}), HasSubstr(no_row));
  EXPECT_THAT(error({Column(false), Row(false)}), HasSubstr(no_row));
  EXPECT_THAT(error({Row(true)}), HasSubstr(no_column));
  EXPECT_THAT(error({Column(true), Row(true)}), HasSubstr(no_column));
  EXPECT_THAT(error({Holding("Residual", {Row(true)})}), HasSubstr(no_column));
}

TEST(LayOut, ColumnAndRowAreAPair) {
  const LayerSpec column = Linear(4, 6, "column"), row = Linear(6, 4, "row");
  EXPECT_THAT(Layouts({column, row}), ElementsAre("whole>-1", "-1>whole"));
  EXPECT_THAT(Layouts({column, Layer("GELU"), Layer("Dropout"), row, Layer("ReLU")}),
              ElementsAre("whole>-1", "-1>-1", "-1>-1", "-1>whole", "whole>whole"));
}

TEST(LayOut, WithoutARowTheOutputIsWhole) {
  const LayerSpec column = Linear(4, 4, "column");
  for (const LayerSpec& next :
       {Layer("Softmax", {1}), Layer("Linear", {4, 4}), column, Encoder("sequence"),
        Holding("Sequential", {Linear(4, 4, "row")})}) {
    EXPECT_THAT(Layouts({column, Layer("ReLU"), next, Linear(4, 4, "row")})[1], "whole>whole")
        << next.ToString();
  }
  EXPECT_THAT(Layouts({column, Layer("ReLU")}), ElementsAre("whole>whole", "whole>whole"));
  EXPECT_THAT(Layouts({Linear(4, 4, "row"), Linear(4, 4, "row")}),
              ElementsAre("whole>whole", "whole>whole"));
}

TEST(LayOut, ALossMayTakeTheParts) {
  const LayerSpec column = Linear(4, 4, "column");
  EXPECT_THAT(Layouts({column}, true), ElementsAre("whole>-1"));
  EXPECT_THAT(Layouts({column, Layer("Tanh")}, true), ElementsAre("whole>-1", "-1>-1"));
  EXPECT_THAT(Layouts({Encoder("sequence")}, true), ElementsAre("whole>whole"));
}

TEST(LayOut, SequencesStayApartBetweenLayersOfOneDim) {
  const LayerSpec norm = Layer("LayerNorm", {8}, {{"split", "sequence"}});
  EXPECT_THAT(Layouts({Encoder("sequence"), Encoder("sequence"), Layer("Dropout"), norm,
                       Layer("Linear", {8, 8})}),
              ElementsAre("whole>1", "1>1", "1>1", "1>whole", "whole>whole"));
  EXPECT_THAT(Layouts({Encoder("sequence", false), Encoder("sequence"), Encoder("heads")}),
              ElementsAre("whole>whole", "whole>whole", "whole>whole"));
  EXPECT_THAT(Layouts({Encoder("sequence", false), norm, norm}),
              ElementsAre("whole>0", "0>0", "0>whole"));
}

TEST(LayOut, ContainersHaveChainsOfTheirOwn) {
  const LayerSpec body =
      Holding("Residual", {Linear(4, 6, "column"), Layer("ReLU"), Linear(6, 4, "row")});
  const std::vector<LayerSpec> chain = LayOut(std::vector{Linear(4, 4, "column"), body}, false);
  EXPECT_EQ(chain[0].output_shard, std::nullopt);
  EXPECT_EQ(chain[1].input_shard, std::nullopt);
  EXPECT_EQ(chain[1].children[0].output_shard, -1);
  EXPECT_EQ(chain[1].children[2].input_shard, -1);
  EXPECT_EQ(chain[1].children[2].output_shard, std::nullopt);
}

TEST(TakesParts, OnlyThePlainCrossEntropy) {
  EXPECT_TRUE(TakesParts(Layer("CrossEntropyLoss")));
  EXPECT_FALSE(TakesParts(Layer("CrossEntropyLoss", {}, {{"label_smoothing", 0.1}})));
  EXPECT_FALSE(TakesParts(Layer("CrossEntropyLoss", Value::List{Value(Value::List{1.0, 2.0})})));
  EXPECT_FALSE(TakesParts(Layer("NLLLoss")));
}

// Checks

std::string Check(const LayerSpec& layer, int ranks, const TensorSpecs& input = {}) {
  const std::vector<TensorSpecs> inputs = {input};
  return ErrorOf([&] { CheckSplits({layer}, input.empty() ? decltype(inputs){} : inputs, ranks); });
}

TEST(CheckSplits, WhatIsSharedMustDivide) {
  EXPECT_EQ(Check(Linear(4, 6, "column"), 3), "");
  EXPECT_EQ(Check(Linear(4, 6, "row"), 3),
            "net.lua:4: layer 0 Linear(4, 6, split=\"row\"): in_features 4 is not divisible by "
            "model = 3");
  EXPECT_THAT(Check(Linear(6, 4, "column"), 3), HasSubstr("out_features 4 is not divisible"));
  EXPECT_THAT(Check(Layer("Embedding", {10, 4}, {{"split", "row"}}), 4),
              HasSubstr("num_embeddings 10 is not divisible by model = 4; make it 12"));
  EXPECT_THAT(Check(Layer("Embedding", {10, 4}, {{"split", "column"}}), 3),
              HasSubstr("embedding_dim 4"));
  EXPECT_THAT(Check(Layer("MultiheadAttention", {12, 4}, {{"split", "heads"}}), 3),
              HasSubstr("num_heads 4"));
  EXPECT_THAT(Check(Encoder("heads"), 3), HasSubstr("nhead 4"));
  EXPECT_THAT(Check(Layer("Transformer", {8, 4}), 3), HasSubstr("nhead 4"));
  EXPECT_THAT(Check(Layer("TransformerDecoderLayer", {8, 4}, {{"dim_feedforward", 10}}), 4),
              HasSubstr("dim_feedforward 10"));
  EXPECT_THAT(Check(Holding("Residual", {Linear(4, 4, "row")}), 3), HasSubstr("in_features 4"));
}

TEST(CheckSplits, LayersWithLowRankPartsAreNotShared) {
  LayerSpec layer = Linear(4, 6, "column");
  layer.low_rank = {.rank = 2, .alpha = 4, .dropout = 0, .weights = {"weight"}, .path = ""};
  EXPECT_THAT(Check(layer, 2), HasSubstr("cannot share a layer that `adapt` adds"));
}

TEST(CheckSplits, SequencesMustDivide) {
  const TensorSpecs input = {{{6, 10, 8}, DType::kFloat32}};
  EXPECT_EQ(Check(Encoder("heads"), 4, input), "");
  EXPECT_THAT(Check(Encoder("sequence"), 4, input),
              HasSubstr("the sequence, dim 1 of float32 (6, 10, 8), of length 10 is not divisible "
                        "by model = 4"));
  EXPECT_THAT(Check(Encoder("sequence", false), 4, input), HasSubstr("dim 0 of"));
  EXPECT_EQ(Check(Encoder("sequence"), 2, input), "");
  EXPECT_THAT(
      Check(Layer("LayerNorm", {8}, {{"split", "sequence"}}), 2, {{{6, 8}, DType::kFloat32}}),
      HasSubstr("needs three dims, got float32 (6, 8)"));
}

TEST(CheckSplits, MasksStayWhole) {
  const TensorSpec x = {{6, 10, 8}, DType::kFloat32}, memory = {{6, 7, 8}, DType::kFloat32};
  const TensorSpec mask = {{6, 10}, DType::kBool};
  EXPECT_EQ(Check(Encoder("sequence"), 2, {x, mask}), "");
  const LayerSpec decoder =
      Layer("TransformerDecoderLayer", {8, 4}, {{"split", "sequence"}, {"batch_first", true}});
  EXPECT_EQ(Check(decoder, 2, {x, x, mask}), "");
  EXPECT_THAT(Check(decoder, 2, {x, memory, mask}), HasSubstr("(6, 7, 8), of length 7"));
}

TEST(CheckSplits, SequencesInsideOfLayersMustDivide) {
  const TensorSpecs input = {{{6, 4, 5}, DType::kFloat32}};
  const LayerSpec norm = Layer("LayerNorm", {8}, {{"split", "sequence"}});
  const auto error = [&](const char* type, int ranks) {
    const LayerSpec inner = Holding("Residual", {norm, Linear(8, 8, "column")});
    return Check(Holding(type, {Layer("Linear", {5, 8}), Layer("Tanh"), inner}), ranks, input);
  };
  EXPECT_EQ(error("Sequential", 4), "");
  EXPECT_EQ(error("Sequential", 2), "");
  EXPECT_THAT(error("Sequential", 8),
              HasSubstr("dim 1 of float32 (6, 4, 8), of length 4 is not divisible by model = 8"));
  EXPECT_THAT(Check(Holding("Residual", {Encoder("sequence"), Layer("Linear", {8, 8})}), 4,
                    {{{6, 10, 8}, DType::kFloat32}}),
              HasSubstr("of length 10 is not divisible by model = 4"));
  EXPECT_EQ(Check(Holding("Residual", {Encoder("sequence")}), 4), "") << "no shapes are known";
}

TEST(CheckSplits, ANormOverTheSequenceDoesNotShareIt) {
  using Sizes = std::vector<int64_t>;
  const auto error = [](const Sizes& normalized, const Sizes& input) {
    const LayerSpec norm = Layer("LayerNorm", {Ints(normalized)}, {{"split", "sequence"}});
    return Check(norm, 2, {{input, DType::kFloat32}});
  };
  EXPECT_THAT(error({6, 8}, {4, 6, 8}),
              HasSubstr("split = \"sequence\" shares dim 1 of float32 (4, 6, 8), and "
                        "normalized_shape (6, 8) needs all of it"));
  EXPECT_THAT(error({4, 6, 8}, {4, 6, 8}), HasSubstr("normalized_shape (4, 6, 8) needs all"));
  EXPECT_EQ(error({8}, {4, 6, 8}), "");
  EXPECT_EQ(error({5, 8}, {4, 6, 5, 8}), "");
}

TEST(CheckSplits, TiedLayersAreSplitAlike) {
  const auto tied = [](const char* split) {
    LayerSpec layer = Layer("Embedding", {12, 4}, {{"split", split}});
    layer.tied_key = "embed";
    return layer;
  };
  EXPECT_EQ(ErrorOf([&] { CheckSplits({tied("row"), tied("row")}, {}, 2); }), "");
  EXPECT_THAT(ErrorOf([&] {
                CheckSplits({tied("row"), tied("none")}, {}, 2);
              }),
              HasSubstr("strata.tied{\"embed\"}: Embedding(12, 4) and Embedding(12, 4, "
                        "split=\"row\") must say the same split"));
}

TEST(CheckSplits, TiedLayersSeeAsMuchOfTheSequence) {
  const auto tied = [](const char* split, bool frozen = false) {
    LayerSpec layer = Layer("LayerNorm", {8}, {{"split", split}});
    layer.tied_key = "norm";
    layer.tied_weights = {"weight", "bias"};
    layer.frozen = frozen;
    return layer;
  };
  const auto error = [](const LayerSpec& first, const LayerSpec& second) {
    return ErrorOf([&] { CheckSplits({Linear(8, 8, "row"), first, second}, {}, 2); });
  };
  EXPECT_EQ(error(tied("sequence"), tied("sequence")), "");
  EXPECT_EQ(error(tied("none"), tied("none")), "");
  EXPECT_EQ(error(tied("sequence", true), tied("none", true)), "") << "they have no gradients";
  for (const char* first : {"sequence", "none"}) {
    const char* const second = first == std::string("none") ? "sequence" : "none";
    EXPECT_THAT(error(tied(first), tied(second)),
                HasSubstr("must say the same split to share their tensors"));
  }
}

TEST(LayOut, AForwardOfTheScriptsTakesAndGivesTheWhole) {
  LayerSpec column = Linear(4, 6, "column");
  column.tied_forward = Function("net.lua:9");
  EXPECT_THAT(Layouts({column, Linear(6, 4, "row")}), ElementsAre("whole>whole", "whole>whole"));
}

TEST(CheckSplits, SomethingMustBeSplit) {
  const std::string error =
      Check(Holding("Sequential", {Layer("Linear", {4, 4}), Encoder("none")}), 2);
  EXPECT_THAT(error, HasSubstr("parallel.model = 2, but there is no layer"));
  EXPECT_EQ(Check(Holding("Sequential", {Linear(4, 4, "row")}), 2), "");
}

// A split fits exactly when M divides the number that the layer shares.
TEST(CheckSplits, FitWhereTheRanksDivide) {
  struct Split {
    LayerSpec layer;
    int shared;
  };
  const Split splits[] = {
      {Linear(12, 10, "row"), 12},
      {Linear(12, 10, "column"), 10},
      {Layer("Embedding", {18, 5}, {{"split", "row"}}), 18},
      {Layer("Embedding", {18, 5}, {{"split", "column"}}), 5},
      {Layer("MultiheadAttention", {12, 6}, {{"split", "heads"}}), 6},
      {Encoder("heads"), 4},
      {Encoder("sequence"), 4},
  };
  for (const auto& [layer, shared] : splits) {
    for (int ranks = 2; ranks <= 18; ++ranks) {
      EXPECT_EQ(Check(layer, ranks).empty(), shared % ranks == 0)
          << layer.ToString() << " over " << ranks;
      EXPECT_EQ(Check(Holding("Residual", {layer}), ranks).empty(), shared % ranks == 0)
          << "inside, " << layer.ToString() << " over " << ranks;
    }
  }
}

// Each layer takes what the one before it gives. The input and output of a stage are whole.
TEST(LayOut, NeighboursAgreeInEveryOrder) {
  const std::vector<LayerSpec> kinds = {Linear(8, 8, "column"), Linear(8, 8, "row"), Layer("ReLU"),
                                        Encoder("sequence"),
                                        Layer("LayerNorm", {8}, {{"split", "sequence"}})};
  for (const LayerSpec& a : kinds) {
    for (const LayerSpec& b : kinds) {
      for (const LayerSpec& c : kinds) {
        const std::vector<LayerSpec> chain = LayOut(std::vector{a, b, c}, false);
        EXPECT_EQ(chain[0].input_shard, std::nullopt);
        EXPECT_EQ(chain[1].input_shard, chain[0].output_shard);
        EXPECT_EQ(chain[2].input_shard, chain[1].output_shard);
        EXPECT_EQ(chain[2].output_shard, std::nullopt);
      }
    }
  }
}

}  // namespace
}  // namespace strata
