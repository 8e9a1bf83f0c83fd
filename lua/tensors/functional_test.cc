// F compared with PyTorch's torch.nn.functional: numbers, signatures and errors.
#include "lua/tensors/functional.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/layers/random/random.h"
#include "lua/tensors/argument.h"
#include "lua/tensors/operators.h"
#include "lua/tensors/testing.h"

namespace strata::lua {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::Not;

class FunctionalTest : public TensorsTest {
 protected:
  bool HasBody(const Functional& functional) {
    bool has = false;
    Session session(state_);
    session.Run([&](lua_State* L) { has = PushFunctional(L, functional); });
    return has;
  }
};

// Calls all functions with all their arguments, by position and by name; compares values and
// gradients.
TEST_F(FunctionalTest, GivesWhatPyTorchGives) {
  EXPECT_NO_THROW(state_.RunFile("lua/tensors/testdata/functional.lua"));
}

/// The arguments that a caller may give, in order: "Tensor input, int dim=1, ".
std::string Arguments(const c10::FunctionSchema& schema) {
  std::string text;
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.name() == "generator") continue;  // Lua has no generators
    std::string one = ArgumentText(argument);
    const size_t self = one.find(" self");
    if (self != one.npos) one.replace(self, 5, " input");
    text += Str(argument.kwarg_only() ? "* " : "", one, ", ");
  }
  return text;
}

TEST_F(FunctionalTest, WithoutABodyTheOperatorHasTheSignature) {
  int operators = 0;
  for (const Functional* functional : AllFunctionals()) {
    if (!functional->schema || HasBody(*functional)) continue;
    ++operators;
    const Operator* op = FindOperator(functional->name);
    ASSERT_NE(op, nullptr) << functional->name;
    std::vector<std::string> signatures;
    for (const auto& overload : op->overloads) signatures.push_back(Arguments(overload.schema()));
    EXPECT_THAT(signatures, Contains(Arguments(*functional->schema))) << functional->name;
  }
  EXPECT_GT(operators, 30);
}

TEST_F(FunctionalTest, NamesWithoutAFunctionSayWhy) {
  std::vector<std::string> names;
  for (const Functional* functional : AllFunctionals()) {
    if (functional->no_function.empty()) continue;
    names.push_back(functional->name);
    EXPECT_THAT(ErrorOf("F." + functional->name),
                HasSubstr(Str("there is no F.", functional->name, ": ", functional->no_function)));
  }
  EXPECT_THAT(
      names, testing::ElementsAre("assert_int_or_pair", "boolean_dispatch", "handle_torch_function",
                                  "has_torch_function", "has_torch_function_unary",
                                  "has_torch_function_variadic", "scaled_grouped_mm", "scaled_mm"));
}

// PyTorch 2.11 gives these numbers after torch.manual_seed(3).
TEST_F(FunctionalTest, RandomFunctionsDrawFromTheThreadsGenerator) {
  Shown("x = F.arange(1, 9):float() image = F.arange(16):float():view(1, 1, 4, 4)");
  Shown("function rounded(y) return (y * 1000):round():long():view(-1):tolist() end");
  const std::vector<Example> examples = {
      {"F.dropout(x)", "{2000, 4000, 0, 8000, 0, 0, 14000, 16000}"},
      {"F.dropout1d(x:view(1, 4, 2))", "{2000, 4000, 6000, 8000, 0, 0, 14000, 16000}"},
      {"F.dropout1d(x:view(4, 2))", "{2000, 4000, 6000, 8000, 0, 0, 14000, 16000}"},
      {"F.dropout2d(x:view(1, 4, 1, 2))", "{2000, 4000, 6000, 8000, 0, 0, 14000, 16000}"},
      {"F.dropout3d(x:view(4, 1, 1, 2), 0.25)", "{1333, 2667, 4000, 5333, 0, 0, 9333, 10667}"},
      {"F.alpha_dropout(x, 0.5, true)", "{1666, 2552, -779, 4325, -779, -779, 6984, 7870}"},
      {"F.feature_alpha_dropout(x:view(1, 4, 2), 0.5, true)",
       "{1666, 2552, 3438, 4325, -779, -779, 6984, 7870}"},
      {"F.rrelu(-x, {training=true})", "{-132, -369, -858, -646, -1412, -1510, -1165, -1722}"},
      {"F.gumbel_softmax(x)", "{7, 2, 1, 26, 9, 39, 445, 471}"},
      {"F.gumbel_softmax(x:view(2, 4), 0.5, true)", "{0, 0, 0, 1000, 0, 0, 0, 1000}"},
      {"F.fractional_max_pool2d(image, 2, 2)", "{5000, 7000, 13000, 15000}"},
  };
  for (const Example& example : examples) {
    const RandomScope scope(3);
    EXPECT_EQ(ErrorOf("rounded(" + example.text + ")"), "no error, but " + example.shown)
        << example.text;
  }
}

// Likewise: the elements 0, 1, 2 and 23 of a tensor of shape (4, 3, 2), times 100,000.
TEST_F(FunctionalTest, InitialValuesArePyTorchs) {
  Shown("nn = strata.nn");
  const std::vector<Example> examples = {
      {"nn.init.uniform_(t, -1, 2)", "{-98721, -68329, -14247, -96367}"},
      {"nn.init.normal_(t, {std=3, mean=1})", "{77007, 207964, -134605, 67227}"},
      {"nn.init.constant_(t, 7)", "{700000, 700000, 700000, 700000}"},
      {"nn.init.xavier_uniform_(t, 2)", "{-129814, -103286, -56080, -127760}"},
      {"nn.init.xavier_normal_(t)", "{-2897, 13602, -29557, -4129}"},
      {"nn.init.kaiming_uniform_(t, 5 ^ 0.5)", "{-40477, -32205, -17486, -39836}"},
      {"nn.init.kaiming_normal_(t, {mode='fan_out', nonlinearity='relu'})",
       "{-3832, 17994, -39101, -5462}"},
      {"nn.init.trunc_normal_(t, 0.1, 1.5)", "{-196567, -134934, -62607, -190519}"},
      {"nn.init.orthogonal_(t, 3)", "{-20353, 95566, -207663, 724}"},
  };
  for (const Example& example : examples) {
    const RandomScope scope(3);
    const std::string given =
        Str("(function() local t = F.empty{4, 3, 2} local y = ", example.text,
            " assert(y == t) return (t:view(-1):index_select(0, F.tensor{0, 1, 2, 23}) * "
            "100000):round():long():tolist() end)()");
    EXPECT_EQ(ErrorOf(given), "no error, but " + example.shown) << example.text;
  }
  const std::vector<Example> whole = {
      {"nn.init.sparse_(F.empty{4, 3}, 0.3, 0.5)",
       "{0, 0, 0, -30686, 2309, -68413, 16875, 0, 0, 0, 26102, 61896}"},
      {"nn.init.eye_(F.empty{2, 3})", "{100000, 0, 0, 0, 100000, 0}"},
      {"nn.init.dirac_(F.empty{2, 3, 2})", "{0, 100000, 0, 0, 0, 0, 0, 0, 0, 100000, 0, 0}"},
      {"nn.init.dirac_(F.empty{4, 1, 3}, 2)", "{0, 100000, 0, 0, 0, 0, 0, 100000, 0, 0, 0, 0}"},
      {"nn.init.dirac_(F.empty{2, 1, 2, 2})", "{0, 0, 0, 100000, 0, 0, 0, 0}"},
  };
  for (const Example& example : whole) {
    const RandomScope scope(3);
    EXPECT_EQ(Shown(Str("(", example.text, ":view(-1) * 100000):round():long():tolist()")),
              example.shown)
        << example.text;
  }
  EXPECT_THAT(ErrorOf("nn.init.dirac_(F.ones{4, 2, 3}, 3)"),
              HasSubstr("nn.init.dirac_: groups = 3 does not divide dim 0, of 4"));
  EXPECT_THAT(ErrorOf("nn.init.eye_(F.ones{3})"),
              HasSubstr("needs a tensor of 2 dims, got one of 1"));
  EXPECT_EQ(Shown("nn.init.calculate_gain('tanh')"), Shown("5 / 3"));
  EXPECT_THAT(
      ErrorOf("nn.init.xavier_uniform_(F.ones{3})"),
      HasSubstr("nn.init.xavier_uniform_: needs a tensor of at least 2 dims, got one of 1"));
  EXPECT_THAT(ErrorOf("nn.init.kaiming_normal_(F.ones{3, 3}, {mode='fan_inn'})"),
              HasSubstr("did you mean \"fan_in\"?"));
  EXPECT_THAT(ErrorOf("nn.init.normall_(F.ones{3})"),
              HasSubstr("there is no nn.init.normall_; did you mean \"normal_\"?"));
}

TEST_F(FunctionalTest, InPlaceChangesTheInput) {
  const std::vector<Example> examples = {
      {"F.relu(x, true)", "{0, 2}"},
      {"F.threshold(x, 1, 7, true)", "{7, 2}"},
      {"F.dropout(x, 1, {inplace=true})", "{-0, 0}"},
      {"F.dropout1d(x:view(2, 1), 1, true, true)", "{-0, 0}"},
      {"F.dropout1d(x:view(2, 1), 1, true, false)", "{-1.5, 2}"},
  };
  for (const Example& example : examples) {
    Shown("x = F.tensor{-1.5, 2} " + example.text);
    EXPECT_EQ(Shown("x:tolist()"), example.shown) << example.text;
  }
}

TEST_F(FunctionalTest, ErrorsNameTheFunctionAndItsSignature) {
  Shown(
      "x = F.ones{2, 3} image = F.ones{1, 1, 2, 2} labels = F.tensor{0, 1} bags = F.tensor{{0, 1}, "
      "{1, 0}}");
  const std::vector<Example> examples = {
      {"F.softmax(x, 1, {dtipe=\"float64\"})",
       "softmax has no argument \"dtipe\"; did you mean \"dtype\"?"},
      {"F.softmax(x, 1, {dtipe=\"float64\"})",
       "it is softmax(Tensor input, int? dim=nil, int _stacklevel=3, ScalarType? dtype=nil)"},
      {"F.softmax(x, 'a')", "expects int? dim=nil, got the string \"a\""},
      {"F.embedding(labels, x, 7)",
       "embedding: padding_idx must be within the 2 rows of weight, got 7"},
      {"F.cross_entropy(x, labels, {reduction=\"avg\"})",
       "cross_entropy: reduction must be one of \"none\", \"mean\", \"sum\", got \"avg\""},
      {"F.cross_entropy(x, labels, {reduction=\"summ\"})", "did you mean \"sum\"?"},
      {"F.cross_entropy(x, F.tensor{0, 7})", "cross_entropy: "},
      {"F.batch_norm(x, nil, nil, {eps=0, training=true})",
       "batch_norm: eps must be positive, got 0"},
      {"F.batch_norm(F.ones{1, 3}, nil, nil, {training=true})", "more than 1 value per channel"},
      {"F.instance_norm(F.ones{1, 3, 1})", "more than 1 spatial element"},
      {"F.group_norm(F.ones{1, 2}, 2)", "more than 1 value per group"},
      {"F.embedding_bag(labels, x)", "needs offsets"},
      {"F.embedding_bag(labels:view(1, 2), x, labels)", "takes no offsets"},
      {"F.embedding_bag(labels:view(1, 2), x, {mode=\"avg\"})", "mode must be one of"},
      {"F.mse_loss(x, x, {weight=labels})", "weight and input must have the same size"},
      {"F.mse_loss(F.ones{3, 1}, F.ones{3})",
       "input {3, 1} and target {3} would be compared as {3, 3}"},
      {"F.huber_loss(F.ones{3}, F.ones{3, 1})", "would be compared as {3, 3}"},
      {"F.gaussian_nll_loss(x, x, -1)", "var has negative entries"},
      {"F.gaussian_nll_loss(x, x, F.ones{5})", "var must have the size of input"},
      {"F.triplet_margin_loss(x, x, x, 0)", "margin must be greater than 0, got 0"},
      {"F.dropout(x, 2)", "dropout probability has to be between 0 and 1"},
      {"F.dropout1d(image)", "expected an input of 2 or 3 dims, got 4"},
      {"F.hardtanh(x, 1, -1)", "min_val must not be above max_val"},
      {"F.max_unpool2d(image, image:long(), 2, nil, 0, {9, 9})",
       "dim 0 of output_size must be between 2 and 6, got 9"},
      {"F.interpolate(image)", "either size or scale_factor"},
      {"F.interpolate(image, 2, 2)", "not both"},
      {"F.interpolate(image, {2, 2, 2})", "one number or 2, one for each spatial dim; got 3"},
      {"F.interpolate(x, 2)", "3, 4 or 5 dims"},
      {"F.interpolate(image, 2, {mode=\"bilinar\"})", "did you mean \"bilinear\"?"},
      {"F.interpolate(image, 2, {mode=\"linear\"})", "4 dims"},
      {"F.interpolate(image, 2, {align_corners=true})", "no meaning"},
      {"F.interpolate(image, 2, {antialias=true})", "antialias needs mode"},
      {"F.interpolate(image, 2, {recompute_scale_factor=true})", "no meaning with a size"},
      {"F.grid_sample(image, x, {mode=\"bicubik\"})", "did you mean \"bicubic\"?"},
      {"F.ctc_loss(F.zeros{4, 2, 3}, F.tensor{{1, 7}, {2, 1}}, {4, 4}, {2, 2})",
       "targets must be within the 3 classes, got 7"},
      {"F.ctc_loss(F.zeros{4, 2, 3}, F.tensor{{1, -1}, {2, 1}}, {4, 4}, F.tensor{2, 2})",
       "targets must be within the 3 classes, got -1"},
      {"F.ctc_loss(F.zeros{4, 2, 3}, F.tensor{1, 2, 3}, {4, 4}, {2, 1})",
       "targets must be within the 3 classes, got 3"},
      {"x:ctc_loss(labels, {4}, {2})", "it is F.ctc_loss("},
      {"F.affine_grid(x, {1, 1, 2, 2})",
       "theta must have the shape (N, 2, 3) for that size, got {2, 3}"},
      {"F.norm(F.ones{3}, \"nuc\")", "needs the two dims of the matrices"},
      {"F.embedding(labels, x, -3)", "padding_idx must be within the 2 rows"},
      {"F.embedding_bag(labels:view(1, 2, 1), x)", "expected an input of 1 or 2 dims, got 3"},
      {"F.embedding_bag(bags, x, {per_sample_weights=F.ones{2, 2}})",
       "need mode \"sum\", got \"mean\""},
      {"F.embedding_bag(bags, x, {per_sample_weights=x, mode=\"sum\"})", "the same shape as input"},
      {"F.embedding_bag(bags, x, {mode=\"max\", scale_grad_by_freq=true})",
       "no scale_grad_by_freq"},
      {"F.embedding_bag(bags, x, {mode=\"max\", sparse=true})", "takes no sparse"},
      {"F.group_norm(F.ones{3}, 1)", "expected an input of at least 2 dims, got 1"},
      {"F.local_response_norm(x, 2)", "expected an input of at least 3 dims, got 2"},
      {"F.margin_ranking_loss(x, x, labels)", "as many dims as each other"},
      {"F.triplet_margin_with_distance_loss(x, x, labels)", "as many dims as each other"},
      {"F.triplet_margin_with_distance_loss(x, x, x, {margin=-1})",
       "margin must be greater than 0"},
      {"F.binary_cross_entropy(x, F.ones{3})", "target and input must have the same size"},
      {"F.binary_cross_entropy_with_logits(x, F.ones{3})",
       "target and input must have the same size"},
      {"F.huber_loss(x, x, {weight=labels})", "weight and input must have the same size"},
      {"F.dropout3d(x)", "expected an input of 4 or 5 dims, got 2"},
      {"F.fractional_max_pool2d(image, 2)", "needs either output_size or output_ratio"},
      {"F.max_unpool2d(image, image:long(), 2, nil, 0, {1, 2, 3})", "2 or 4 numbers, got 3"},
      {"F.affine_grid(F.ones{1, 2, 3}:long(), {1, 1, 2, 2})", "theta must be of floats, got int64"},
      {"F.affine_grid(F.ones{1, 2, 3}, {1, 1, 2})", "size must have 4 or 5 numbers, got 3"},
      {"F.affine_grid(F.ones{1, 2, 3}, {1, 1, 0, 2})", "size must be positive, got {1, 1, 0, 2}"},
      {"F.normalise(x)", "did you mean \"normalize\"?"},
      {"x:cross_entropy(labels)", "it is F.cross_entropy(Tensor input, Tensor target"},
      {"F.relu(F.ones{1}:requires_grad_(), true)", "relu: "},
  };
  for (const Example& example : examples) {
    EXPECT_THAT(ErrorOf(example.text), AllOf(HasSubstr(example.shown), HasSubstr("prompt[")))
        << example.text;
  }
  const char* padded = "F.ctc_loss(F.zeros{4, 2, 3}, F.tensor{{1, -1}, {2, 9}}, {4, 4}, {1, 1})";
  EXPECT_EQ(Shown(Str("(", padded, ").shape")), "{}");
}

// PyTorch would broadcast {4, 1} and {4} to {4, 4}, with a warning.
TEST_F(FunctionalTest, NoLossComparesAColumnWithARow) {
  Shown(
      "column = F.full({4, 1}, 0.5) list = F.full({4}, 0.5) row = F.full({1, 4}, 0.5)\n"
      "wide = F.full({4, 4}, 0.5) labels = F.tensor{0, 1, 0, 1}");
  const char* of_two[] = {"hinge_embedding_loss",
                          "huber_loss",
                          "kl_div",
                          "l1_loss",
                          "mse_loss",
                          "multilabel_soft_margin_loss",
                          "poisson_nll_loss",
                          "smooth_l1_loss",
                          "soft_margin_loss"};
  const std::string refused = ": input {4, 1} and target {4} would be compared as {4, 4}";
  for (const std::string loss : of_two) {
    const std::string name = Str("F.", loss);
    EXPECT_THAT(ErrorOf(Str(name, "(column, list)")), HasSubstr(loss + refused));
    EXPECT_THAT(ErrorOf(Str(name, "(row, column)")), HasSubstr("would be compared as {4, 4}"));
    for (const char* fits : {"(column, column)", "(wide, row)"}) {
      EXPECT_EQ(Shown(Str(name, fits, ".shape")), "{}") << name << fits;
    }
    if (loss == "multilabel_soft_margin_loss") continue;  // LibTorch has no operator of that name
    const char* more = loss == "poisson_nll_loss" ? ", true, false, 1e-8, 1" : "";
    EXPECT_THAT(ErrorOf(Str("column:", loss, "(list", more, ")")), HasSubstr(loss + refused));
  }
  for (const char* loss : {"l1_loss", "mse_loss", "huber_loss"}) {
    EXPECT_THAT(ErrorOf(Str("F.", loss, "(column, list, {weight=column})")), HasSubstr(refused));
  }
  for (const char* loss : {"binary_cross_entropy", "binary_cross_entropy_with_logits"}) {
    EXPECT_THAT(ErrorOf(Str("F.", loss, "(column, list)")), HasSubstr("must have the same size"));
    EXPECT_THAT(ErrorOf(Str("column:", loss, "(list)")), HasSubstr(refused));
  }
  const std::vector<Example> others = {
      {"F.gaussian_nll_loss(column, list, column)", "gaussian_nll_loss" + refused},
      {"F.margin_ranking_loss(column, column, row)",
       "input1 {4, 1}, input2 {4, 1} and target {1, 4} would be compared as {4, 4}"},
      {"column:margin_ranking_loss(column, list)", "and target {4} would be compared as {4, 4}"},
      {"F.cosine_embedding_loss(column, row, labels)", "would be compared as {4, 4}"},
      {"F.triplet_margin_loss(column, row, column)",
       "anchor {4, 1}, positive {1, 4} and negative {4, 1} would be compared as {4, 4}"},
      {"F.triplet_margin_with_distance_loss(column, row, column)", "would be compared as {4, 4}"},
      {"F.cross_entropy(column, list)", "cross_entropy: "},
      {"F.nll_loss(column, list)", "nll_loss: "},
      {"F.multi_margin_loss(column, list)", "multi_margin_loss: "},
      {"F.multilabel_margin_loss(column, labels)", "multilabel_margin_loss: "},
  };
  for (const Example& example : others) {
    EXPECT_THAT(ErrorOf(example.text), HasSubstr(example.shown)) << example.text;
  }
  EXPECT_EQ(Shown("F.cosine_embedding_loss(wide, wide, labels).shape"), "{}");
}

TEST_F(FunctionalTest, AttentionChecksItsShapes) {
  Shown(
      "x = F.ones{3, 2, 4} w = F.ones{12, 4} o = F.ones{4, 4}\n"
      "function attend(changes)\n"
      "  local all = {query=x, key=x, value=x, embed_dim_to_check=4, num_heads=2, "
      "in_proj_weight=w,\n"
      "               add_zero_attn=false, dropout_p=0, out_proj_weight=o}\n"
      "  for name, value in pairs(changes) do all[name] = value end\n"
      "  return F.multi_head_attention_forward(all)\n"
      "end");
  EXPECT_EQ(Shown("(attend{}).shape"), "{3, 2, 4}");
  const std::vector<Example> examples = {
      {"attend{query=x[0]}", "must all have 3 dims, or 2 without a batch"},
      {"attend{embed_dim_to_check=8}", "query must have 8 features, got 4"},
      {"attend{num_heads=3}", "embed_dim 4 must be a multiple of num_heads 3"},
      {"attend{is_causal=true}", "is_causal needs attn_mask too"},
      {"attend{value=x[{{0, 2}}]}", "value must have the shape {3, 2, 4}, got {2, 2, 4}"},
      {"attend{attn_mask=F.ones{2, 2}}", "attn_mask must have the shape {1, 3, 3}, got {1, 2, 2}"},
      {"attend{attn_mask=F.ones{3, 3}:long()}", "attn_mask must be bool or of floats, got int64"},
      {"attend{key_padding_mask=F.ones{2, 5}}", "key_padding_mask must have the shape {2, 3}"},
      {"attend{bias_k=F.ones{1, 1, 4}}", "needs both of bias_k and bias_v"},
      {"attend{bias_k=F.ones{1, 1, 4}, bias_v=F.ones{1, 1, 4}, static_k=F.ones{4, 3, 2}}",
       "cannot be added to static_k"},
      {"attend{static_k=F.ones{4, 3, 3}}", "static_k must have the shape {4, 3, 2}"},
      {"attend{use_separate_proj_weight=true, q_proj_weight=o}",
       "use_separate_proj_weight needs k_proj_weight"},
      {"attend{use_separate_proj_weight=true, key=x[{{0, 2}}]}",
       "value must have the shape {2, 2, 4}"},
      {"F.multi_head_attention_forward(x, x, x, 4, 2, nil, nil, nil, nil, false, 0, o, nil)",
       "needs in_proj_weight"},
  };
  for (const Example& example : examples) {
    EXPECT_THAT(ErrorOf(example.text), HasSubstr(example.shown)) << example.text;
  }
}

// Errors in bodies, at any depth, are reported at the line that called the function.
TEST_F(FunctionalTest, ErrorsShowTheScriptsLine) {
  const std::string error = ErrorOf("\n\nlocal y = F.upsample(F.ones{1, 1, 2, 2}, 2, 2)\n");
  EXPECT_THAT(error, AllOf(HasSubstr("]:3: upsample: needs either"), Not(HasSubstr("strata:"))));
}

TEST_F(FunctionalTest, MethodsAreTensorsOwn) {
  Shown("x = F.arange(6):float():view(2, 3)");
  EXPECT_EQ(Shown("x:unfold(1, 2, 1).shape"), "{2, 2, 2}") << "Tensor.unfold, not F.unfold";
  EXPECT_EQ(Shown("x:norm(\"fro\") == F.norm(x, 2)"), "true");
  EXPECT_EQ(Shown("select(\"#\", F.tensor{1, 1}:unique(true, false, true))"), "2");
  EXPECT_EQ(Shown("x:add(x, 2) == x * 3"), "true") << "alpha by position";
  EXPECT_EQ(Shown("x:add(2, x) == x * 3"), "true") << "and as PyTorch still takes it";
}

TEST_F(FunctionalTest, DistancesMayBeLuaFunctions) {
  Shown("a, b, c = F.ones{2, 3}, F.zeros{2, 3}, F.ones{2, 3}");
  Shown("function l1(x, y) return F.l1_loss(x, y, {reduction=\"none\"}):sum(1) end");
  const std::string call = "F.triplet_margin_with_distance_loss(a, b, c, {distance_function=l1})";
  EXPECT_EQ(Shown(call + ":item()"), "4");
  EXPECT_THAT(ErrorOf("function l1(x, y) return x.y end " + call), HasSubstr("has no \"y\""));
}

}  // namespace
}  // namespace strata::lua
