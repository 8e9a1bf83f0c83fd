// Tests losses against PyTorch's operators with reduction "mean" and "sum": for the whole batch and
// for micro-batches.
#include "engine/layers/losses.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/testing.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {
namespace {

using testing::MaxDifference;

std::unique_ptr<Loss> Build(const std::string& type, Value::Map args = {}) {
  return BuildLoss(MakeLayer(type, {}, args, {}, ""), nullptr);
}

/// The mean over several micro-batches, as the engine computes it.
struct Mean {
  double value = 0;
  at::Tensor gradient;  // with respect to the output
};

Mean MeanInPieces(Loss& loss, const at::Tensor& output, const at::Tensor& target,
                  const std::vector<int64_t>& rows) {
  const at::Tensor leaf = output.detach().clone().set_requires_grad(true);
  double sum = 0, weight = 0;
  int64_t begin = 0;
  for (int64_t n : rows) {
    const LossValue piece = loss.Compute({leaf.narrow(0, begin, n)}, {target.narrow(0, begin, n)});
    piece.sum.backward();
    sum += piece.sum.item<double>();
    weight += piece.weight;
    begin += n;
  }
  return {sum / LossDivisor(weight), leaf.grad() / LossDivisor(weight)};
}

/// Compares the loss and its gradient with theirs(output, target), PyTorch's loss of the whole
/// batch.
template <class Theirs>
void ExpectEqual(Loss& loss, const at::Tensor& output, const at::Tensor& target, Theirs theirs) {
  const at::Tensor leaf = output.detach().clone().set_requires_grad(true);
  const at::Tensor expected = theirs(leaf, target);
  expected.backward();
  const int64_t n = output.size(0);
  for (const auto& rows : {std::vector<int64_t>{n}, {1, n - 1}, {2, 2, n - 4}}) {
    const Mean mean = MeanInPieces(loss, output, target, rows);
    EXPECT_NEAR(mean.value, expected.item<double>(), 1e-6 * (1 + std::abs(mean.value)));
    EXPECT_LE(MaxDifference(mean.gradient, leaf.grad()), 1e-6);
  }
}

at::Tensor Scores(at::IntArrayRef shape) {
  RandomScope scope(3);
  return at::randn(shape);
}

at::Tensor Labels(at::IntArrayRef shape, int64_t classes) {
  RandomScope scope(4);
  return at::randint(classes, shape, at::kLong);
}

TEST(CrossEntropyLoss, IsPyTorchsMean) {
  ExpectEqual(
      *Build("CrossEntropyLoss"), Scores({7, 5}), Labels({7}, 5),
      [](const at::Tensor& o, const at::Tensor& t) { return at::cross_entropy_loss(o, t); });
}

TEST(CrossEntropyLoss, EveryOption) {
  const std::vector<double> weights = {0.5, 2, 1, 0.25, 3};
  const at::Tensor weight = at::tensor(at::ArrayRef<double>(weights)).to(at::kFloat);
  Value::List list(weights.begin(), weights.end());
  for (const double smoothing : {0.0, 0.2}) {
    for (const bool weighted : {false, true}) {
      for (const std::string reduction : {"mean", "sum"}) {
        Value::Map args = {
            {"ignore_index", 2}, {"label_smoothing", smoothing}, {"reduction", reduction}};
        if (weighted) args.emplace_back("weight", list);
        const auto theirs = [&](const at::Tensor& o, const at::Tensor& t) {
          return at::cross_entropy_loss(
              o, t, weighted ? std::make_optional(weight) : std::nullopt,
              reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum, 2, smoothing);
        };
        SCOPED_TRACE(reduction + (weighted ? ", weighted" : "") +
                     (smoothing > 0 ? ", smooth" : ""));
        const auto loss = Build("CrossEntropyLoss", args);
        ExpectEqual(*loss, Scores({9, 5}), Labels({9}, 5), theirs);
        ExpectEqual(*loss, Scores({9, 5, 4}), Labels({9, 4}, 5), theirs);
      }
    }
  }
}

TEST(CrossEntropyLoss, TokensHaveTheirClassesLast) {
  ExpectEqual(*Build("CrossEntropyLoss"), Scores({6, 4, 5}), Labels({6, 4}, 5),
              [](const at::Tensor& o, const at::Tensor& t) {
                return at::cross_entropy_loss(o.transpose(1, 2), t);
              });
}

TEST(CrossEntropyLoss, Probabilities) {
  for (const auto& shape : {std::vector<int64_t>{6, 5}, {6, 5, 3}}) {
    ExpectEqual(*Build("CrossEntropyLoss", {{"label_smoothing", 0.1}, {"class_dim", 1}}),
                Scores(shape), at::softmax(Scores(shape) * 2, 1),
                [](const at::Tensor& o, const at::Tensor& t) {
                  return at::cross_entropy_loss(o, t, {}, at::Reduction::Mean, -100, 0.1);
                });
  }
}

TEST(CrossEntropyLoss, ABatchWithoutLabelsHasNoLossAndNoGradient) {
  const Mean mean = MeanInPieces(*Build("CrossEntropyLoss"), Scores({3, 5}),
                                 at::full({3}, kNoLabel, at::kLong), {3});
  EXPECT_EQ(mean.value, 0);
  EXPECT_EQ(mean.gradient.abs().max().item<float>(), 0);
}

TEST(CrossEntropyLoss, LabelsOfAnyIntegerType) {
  const auto loss = Build("CrossEntropyLoss");
  const at::Tensor output = Scores({7, 5}), labels = Labels({7}, 5);
  const double expected = loss->Compute({output}, {labels}).sum.item<double>();
  for (const at::ScalarType type : {at::kByte, at::kInt, at::kShort}) {
    EXPECT_EQ(loss->Compute({output}, {labels.to(type)}).sum.item<double>(), expected);
  }
}

TEST(NLLLoss, IsPyTorchs) {
  const at::Tensor output = at::log_softmax(Scores({8, 5, 3}), 1);
  ExpectEqual(*Build("NLLLoss", {{"ignore_index", 1}}), output, Labels({8, 3}, 5),
              [](const at::Tensor& o, const at::Tensor& t) {
                return at::nll_loss_nd(o, t, {}, at::Reduction::Mean, 1);
              });
}

TEST(ElementLosses, ArePyTorchs) {
  const at::Tensor output = Scores({6, 3, 2});
  const at::Tensor target = Scores({6, 3, 2}).sigmoid();
  ExpectEqual(*Build("MSELoss"), output, target,
              [](const at::Tensor& o, const at::Tensor& t) { return at::mse_loss(o, t); });
  ExpectEqual(*Build("MSELoss", {{"reduction", "sum"}}), output, target,
              [](const at::Tensor& o, const at::Tensor& t) { return (o - t).square().sum(); });
  ExpectEqual(*Build("L1Loss"), output, target,
              [](const at::Tensor& o, const at::Tensor& t) { return at::l1_loss(o, t); });
  const at::Tensor weight = at::tensor({0.5f, 2.0f}), positive = at::tensor({3.0f, 0.25f});
  ExpectEqual(*Build("BCEWithLogitsLoss",
                     {{"weight", Value::List{0.5, 2.0}}, {"pos_weight", Value::List{3.0, 0.25}}}),
              output, target, [&](const at::Tensor& o, const at::Tensor& t) {
                return at::binary_cross_entropy_with_logits(o, t, weight, positive);
              });
}

TEST(ElementLosses, OfRatesProbabilitiesAndOutliersArePyTorchs) {
  const at::Tensor output = Scores({6, 3, 2}).mul(2), target = Scores({6, 3, 2}).flip(0).sigmoid();
  ExpectEqual(*Build("HuberLoss", {{"delta", 0.7}}), output, target,
              [](const at::Tensor& o, const at::Tensor& t) {
                return at::huber_loss(o, t, at::Reduction::Mean, 0.7);
              });
  ExpectEqual(*Build("SmoothL1Loss", {{"beta", 0.7}}), output, target,
              [](const at::Tensor& o, const at::Tensor& t) {
                return at::smooth_l1_loss(o, t, at::Reduction::Mean, 0.7);
              });
  const at::Tensor weight = at::tensor({0.5f, 2.0f});
  ExpectEqual(*Build("BCELoss", {{"weight", Value::List{0.5, 2.0}}}), output.sigmoid(), target,
              [&](const at::Tensor& o, const at::Tensor& t) {
                return at::binary_cross_entropy(o, t, weight);
              });
  for (const bool full : {false, true}) {
    ExpectEqual(*Build("PoissonNLLLoss", {{"full", full}}), output, target.mul(5).round(),
                [&](const at::Tensor& o, const at::Tensor& t) {
                  return at::poisson_nll_loss(o, t, true, full, 1e-8, at::Reduction::Mean);
                });
  }
}

TEST(KLDivLoss, IsPyTorchs) {
  const at::Tensor output = at::log_softmax(Scores({6, 4}), 1);
  const at::Tensor target = at::softmax(Scores({6, 4}).flip(0), 1);
  ExpectEqual(*Build("KLDivLoss"), output, target,
              [](const at::Tensor& o, const at::Tensor& t) { return at::kl_div(o, t); });
  ExpectEqual(*Build("KLDivLoss", {{"reduction", "batchmean"}, {"log_target", true}}), output,
              target.log(), [](const at::Tensor& o, const at::Tensor& t) {
                return at::kl_div(o, t, at::Reduction::Sum, true).div(6);
              });
}

// ---- losses of several tensors: the whole batch, and its micro-batches

/// Samples begin..begin+n-1 of all tensors; `dims` are the tensors' batch dims.
Tensors Rows(const Tensors& tensors, const std::vector<int64_t>& dims, int64_t begin, int64_t n) {
  Tensors rows;
  for (size_t i = 0; i < tensors.size(); ++i) {
    rows.push_back(tensors[i].narrow(dims.at(i), begin, n));
  }
  return rows;
}

/// Compares the loss and its gradients with PyTorch's loss of the whole batch. `dims` are the
/// outputs' batch dims.
void ExpectEqualOfSeveral(Loss& loss, const Tensors& outputs, const std::vector<int64_t>& dims,
                          const Tensors& targets,
                          const std::function<at::Tensor(const Tensors&)>& theirs) {
  const auto leaves = [&] {
    Tensors fresh;
    for (const at::Tensor& x : outputs) fresh.push_back(x.detach().clone().set_requires_grad(true));
    return fresh;
  };
  const Tensors whole = leaves();
  const at::Tensor expected = theirs(whole);
  expected.backward();
  const int64_t n = outputs[0].size(dims[0]);
  for (const auto& rows : {std::vector<int64_t>{n}, {1, n - 1}, {2, n - 3, 1}}) {
    const Tensors ours = leaves();
    const std::vector<int64_t> first(targets.size(), 0);
    double sum = 0, weight = 0;
    int64_t begin = 0;
    for (const int64_t count : rows) {
      const LossValue piece =
          loss.Compute(Rows(ours, dims, begin, count), Rows(targets, first, begin, count));
      piece.sum.backward();
      sum += piece.sum.item<double>();
      weight += piece.weight;
      begin += count;
    }
    EXPECT_NEAR(sum / LossDivisor(weight), expected.item<double>(), 1e-5);
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_LE(MaxDifference(ours[i].grad() / LossDivisor(weight), whole[i].grad()), 1e-6) << i;
    }
  }
}

TEST(GaussianNLLLoss, IsItsFormula) {
  const at::Tensor target = Scores({6, 3}).flip(0);
  for (const bool full : {false, true}) {
    const auto theirs = [&](const Tensors& o) {
      const at::Tensor variance = o[1].dim() == 1 ? o[1].unsqueeze(-1) : o[1];
      const at::Tensor each = (variance.log() + (o[0] - target).square() / variance) * 0.5;
      return each.mean() + (full ? 0.5 * std::log(2 * M_PI) : 0.0);
    };
    const auto loss = Build("GaussianNLLLoss", {{"full", full}});
    const at::Tensor variance = Scores({6, 3}).exp();
    ExpectEqualOfSeveral(*loss, {Scores({6, 3}), variance}, {0, 0}, {target}, theirs);
    ExpectEqualOfSeveral(*loss, {Scores({6, 3}), variance.select(1, 0)}, {0, 0}, {target}, theirs);
  }
  const auto small = Build("GaussianNLLLoss", {{"eps", 0.5}});
  const at::Tensor zeros = at::zeros({2, 3});
  EXPECT_NEAR(small->Compute({zeros, zeros}, {zeros}).sum.item<double>(), 3 * std::log(0.5), 1e-5);
  EXPECT_THROW(small->Compute({zeros, zeros.sub(1)}, {zeros}), ConfigError);
}

std::string ErrorOf(const std::string& type, const Tensors& outputs, const Tensors& targets) {
  return ConfigErrorOf([&] { Build(type)->Compute(outputs, targets); });
}

TEST(CTCLoss, IsPyTorchs) {
  const at::Tensor output = at::log_softmax(Scores({9, 5, 4}), 2);
  const at::Tensor labels = Labels({5, 3}, 3).add(1);
  const at::Tensor input_lengths = at::tensor({9, 8, 9, 7, 9}, at::kLong);
  const at::Tensor lengths = at::tensor({3, 2, 1, 3, 2}, at::kLong);
  for (const std::string reduction : {"mean", "sum"}) {
    const auto theirs = [&](const Tensors& o) {
      return at::ctc_loss(o[0], labels, input_lengths, lengths, 0,
                          reduction == "mean" ? at::Reduction::Mean : at::Reduction::Sum);
    };
    ExpectEqualOfSeveral(*Build("CTCLoss", {{"reduction", reduction}}), {output}, {1},
                         {labels, input_lengths, lengths}, theirs);
  }
}

TEST(CTCLoss, RefusesLabelsWithoutAClass) {
  const at::Tensor output = at::log_softmax(Scores({9, 2, 4}), 2);
  const at::Tensor input_lengths = at::tensor({9, 9}, at::kLong);
  const at::Tensor lengths = at::tensor({2, 1}, at::kLong);
  const auto error = [&](const at::Tensor& labels) {
    return ErrorOf("CTCLoss", {output}, {labels, input_lengths, lengths});
  };
  const auto rows = [](int64_t a, int64_t b, int64_t c, int64_t d) {
    return at::tensor({a, b, c, d}, at::kLong).view({2, 2});
  };
  EXPECT_EQ(error(rows(1, 2, 3, 99)), "no error") << "99 is behind its row's length";
  EXPECT_THAT(error(rows(1, 4, 3, 0)), ::testing::HasSubstr("expected a label from 0 to 3, got 4"));
  EXPECT_THAT(error(rows(1, 2, -1, 0)),
              ::testing::HasSubstr("expected a label from 0 to 3, got -1"));
  EXPECT_THAT(error(at::tensor({1, 2, 9}, at::kLong)),
              ::testing::HasSubstr("got 9 (there are 4 classes)"));
}

TEST(TripletMarginLoss, IsPyTorchsAndNeedsNoTarget) {
  const at::Tensor x = Scores({6, 4});
  ExpectEqualOfSeveral(*Build("TripletMarginLoss", {{"margin", 0.8}, {"swap", true}}),
                       {x, x.flip(0), x.flip(1)}, {0, 0, 0}, {}, [](const Tensors& o) {
                         return at::triplet_margin_loss(o[0], o[1], o[2], 0.8, 2, 1e-6, true);
                       });
}

TEST(CosineEmbeddingLoss, IsPyTorchs) {
  const at::Tensor x = Scores({6, 4});
  const at::Tensor target = at::tensor({1, -1, 1, 1, -1, -1}, at::kLong);
  ExpectEqualOfSeveral(
      *Build("CosineEmbeddingLoss", {{"margin", -0.2}}), {x, x.flip(0)}, {0, 0}, {target},
      [&](const Tensors& o) { return at::cosine_embedding_loss(o[0], o[1], target, -0.2); });
}

TEST(ElementLosses, OneWeightHoldsForAll) {
  const at::Tensor output = Scores({4, 3}), target = Scores({4, 3}).sigmoid();
  ExpectEqual(*Build("BCEWithLogitsLoss", {{"pos_weight", 3}}), output, target,
              [](const at::Tensor& o, const at::Tensor& t) {
                return at::binary_cross_entropy_with_logits(o, t, {}, at::tensor({3.0f}));
              });
}

/// PyTorch's loss with the dim `dim` of output and probabilities moved to dim 1.
auto TheirsWith(int64_t dim) {
  return [dim](const at::Tensor& o, const at::Tensor& t) {
    return at::cross_entropy_loss(o.movedim(dim, 1), t.is_floating_point() ? t.movedim(dim, 1) : t);
  };
}

TEST(CrossEntropyLoss, TakesTheDimThatIsSaid) {
  const auto with = [](int dim) { return Build("CrossEntropyLoss", {{"class_dim", dim}}); };
  const at::Tensor square = Scores({5, 4, 4}), oblong = Scores({5, 3, 4});
  const at::Tensor labels = at::arange(20).remainder(4).view({5, 4});
  for (const int dim : {1, -1}) {
    const auto loss = with(dim);
    ExpectEqual(*loss, square, labels, TheirsWith(dim));
    ExpectEqual(*loss, square, Scores({5, 4, 4}).softmax(dim), TheirsWith(dim));
    ExpectEqual(*loss, oblong, Scores({5, 3, 4}).softmax(dim), TheirsWith(dim));
    EXPECT_EQ(loss->CountHits({square}, {square.argmax(dim)}).correct, 20);
    EXPECT_EQ(loss->CountHits({oblong}, {oblong.softmax(dim)}).correct, dim == 1 ? 20 : 15);
  }
  // The classes may also be in a dim in between, if the script says so.
  const at::Tensor four = Scores({5, 3, 4, 4});
  ExpectEqual(*with(2), four, at::arange(60).remainder(4).view({5, 3, 4}), TheirsWith(2));
}

TEST(CrossEntropyLoss, TakesThePlannedDimForEveryMicroBatch) {
  LayerSpec spec = MakeLayer("CrossEntropyLoss", {}, {}, {}, "");
  spec.class_dim = -1;
  const auto loss = BuildLoss(spec, nullptr);
  const at::Tensor square = Scores({5, 4, 4});
  const at::Tensor labels = at::arange(20).remainder(4).view({5, 4});
  ExpectEqual(*loss, square, labels, TheirsWith(2));
  ExpectEqual(*loss, square.narrow(1, 0, 3).contiguous(), labels.narrow(1, 0, 3).contiguous(),
              TheirsWith(2));
  EXPECT_EQ(loss->CountHits({square}, {square.argmax(2)}).correct, 20);
  ExpectEqual(*loss, Scores({5, 4, 4, 4}), at::arange(80).remainder(4).view({5, 4, 4}),
              TheirsWith(3));
}

TEST(NLLLoss, TakesScoresThatAreNotContiguous) {
  const auto loss = Build("NLLLoss", {{"class_dim", 2}});
  const at::Tensor scores = Scores({5, 4, 3, 2});
  const at::Tensor labels = at::arange(40).remainder(3).view({5, 4, 2});
  ExpectEqual(*loss, scores, labels, [](const at::Tensor& o, const at::Tensor& t) {
    return at::nll_loss_nd(o.movedim(2, 1).contiguous(), t);
  });
}

TEST(CrossEntropyLoss, RefusesTargetsThatFitTwoDims) {
  const at::Tensor square = Scores({5, 4, 4}), labels = at::arange(20).remainder(4).view({5, 4});
  const auto loss = Build("CrossEntropyLoss");
  for (const at::Tensor& target : {labels, Scores({5, 4, 4}).softmax(1)}) {
    const auto refused = ::testing::HasSubstr(
        "say which: nn.CrossEntropyLoss{class_dim = 1} or nn.CrossEntropyLoss{class_dim = -1}");
    EXPECT_THAT(ConfigErrorOf([&] { loss->Compute({square}, {target}); }), refused);
    EXPECT_THAT(ConfigErrorOf([&] { loss->CountHits({square}, {target}); }), refused);
  }
  EXPECT_EQ(ErrorOf("CrossEntropyLoss", {Scores({5, 3, 4})}, {labels.remainder(3)}), "no error")
      << "dim 1 alone fits";
}

TEST(BCELosses, CountHitsByAThresholdWhateverTheTargetsDtype) {
  const at::Tensor logits = at::tensor({-1.0f, 2.0f, 0.5f, -3.0f}).view({4, 1});
  const at::Tensor right = at::tensor({0, 1, 0, 1}, at::kLong).view({4, 1});
  for (const at::ScalarType dtype : {at::kLong, at::kByte, at::kBool, at::kFloat}) {
    for (const char* type : {"BCELoss", "BCEWithLogitsLoss"}) {
      const at::Tensor scores = type == std::string("BCELoss") ? logits.sigmoid() : logits;
      const Hits hits = Build(type)->CountHits({scores}, {right.to(dtype)});
      EXPECT_EQ(hits.correct, 2) << type << dtype;
      EXPECT_EQ(hits.counted, 4) << type << dtype;
    }
  }
  EXPECT_THAT(ConfigErrorOf([&] { Build("BCELoss")->CountHits({logits}, {right.flatten()}); }),
              ::testing::HasSubstr("expected a target in the output's shape (4, 1)"));
}

TEST(CrossEntropyLoss, SaysWhatFillsUpLabels) {
  const auto loss = Build("CrossEntropyLoss", {{"ignore_index", 0}});
  try {
    loss->CheckTarget({at::tensor({1, -100}, at::kLong)}, {2, 3});
    ADD_FAILURE();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(
                                  "the label -100, which fills up shorter samples, counts with "));
  }
}

TEST(CountLabelHits, GoesByTheDimThatLabelsDoNotHaveOrTheOneThatIsSaid) {
  const at::Tensor scores = at::tensor({0.1f, 0.9f, 0.8f, 0.2f, 0.3f, 0.7f}).view({3, 2});
  const at::Tensor labels = at::tensor({1, 1, 1}, at::kLong);
  Hits hits = CountLabelHits(scores, labels, std::nullopt);
  EXPECT_EQ(hits.correct, 2);
  EXPECT_EQ(hits.counted, 3);
  hits = CountLabelHits(scores.view({1, 3, 2}), labels.view({1, 3}), std::nullopt);
  EXPECT_EQ(hits.correct, 2);
  hits = CountLabelHits(scores.t().unsqueeze(0), labels.view({1, 3}), std::nullopt);
  EXPECT_EQ(hits.correct, 2);
  const at::Tensor square = Scores({5, 4, 4});
  EXPECT_EQ(CountLabelHits(square, square.argmax(2), -1).correct, 20);
  EXPECT_EQ(CountLabelHits(square, square.argmax(1), 1).correct, 20);
  EXPECT_THAT(ConfigErrorOf([&] { CountLabelHits(square, square.argmax(1), std::nullopt); }),
              ::testing::HasSubstr("eval = {class_dim = 1} or eval = {class_dim = -1}"));
  EXPECT_THAT(ConfigErrorOf([&] { CountLabelHits(square, square, -1); }),
              ::testing::HasSubstr("expected integer labels"));
}

TEST(CountHits, IgnoresWhatTheLossIgnores) {
  const auto loss = Build("CrossEntropyLoss", {{"ignore_index", 0}});
  const at::Tensor scores = at::tensor({0.1f, 0.9f, 0.8f, 0.2f, 0.3f, 0.7f}).view({3, 2});
  const Hits hits = loss->CountHits({scores}, {at::tensor({1, 0, 1}, at::kLong)});
  EXPECT_EQ(hits.correct, 2);
  EXPECT_EQ(hits.counted, 2);
}

TEST(Losses, WrongTargetsAreTheUsersErrors) {
  const at::Tensor output = Scores({4, 5});
  EXPECT_EQ(ErrorOf("CrossEntropyLoss", {output}, {Labels({3}, 5)}),
            "expected labels in the shape of the output (4, 5) without its class dim (1 or the "
            "last), got Long (3,)");
  EXPECT_EQ(ErrorOf("CrossEntropyLoss", {output}, {Scores({4})}),
            "CrossEntropyLoss: expected labels (integers) or probabilities in the output's shape, "
            "got the target Float (4,) for the output Float (4, 5)");
  EXPECT_EQ(ErrorOf("CrossEntropyLoss", {output}, {at::full({4}, 5, at::kLong)}),
            "expected a label from 0 to 4, got 5 (there are 5 classes)");
  EXPECT_EQ(ErrorOf("NLLLoss", {output}, {output}), "expected integer labels, got Float (4, 5)");
  EXPECT_EQ(ErrorOf("MSELoss", {output}, {Scores({4})}),
            "MSELoss: expected a target in the output's shape (4, 5), for nothing is broadcast; "
            "got Float (4,)");
}

TEST(Losses, OfSeveralTensorsBroadcastNothing) {
  const at::Tensor column = Scores({4, 1}), list = Scores({4}), row = Scores({1, 4});
  const at::Tensor ones = at::ones({4, 1});
  EXPECT_EQ(ErrorOf("GaussianNLLLoss", {column, ones}, {list}),
            "GaussianNLLLoss: expected a target in the output's shape (4, 1), for nothing is "
            "broadcast; got Float (4,)");
  EXPECT_EQ(ErrorOf("TripletMarginLoss", {column, column, row}, {}),
            "TripletMarginLoss: expected positive and negative in the output's shape (4, 1), for "
            "nothing is broadcast; got Float (1, 4)");
  EXPECT_EQ(ErrorOf("CosineEmbeddingLoss", {column, row}, {at::ones({4})}),
            "CosineEmbeddingLoss: expected a second output in the output's shape (4, 1), for "
            "nothing is broadcast; got Float (1, 4)");
}

TEST(Losses, MissingTensorsAreTheUsersErrors) {
  const at::Tensor x = Scores({4, 5});
  EXPECT_EQ(ErrorOf("MSELoss", {x}, {}),
            "MSELoss: expected 1 output and 1 target, got 1 output and 0 targets");
  EXPECT_EQ(ErrorOf("GaussianNLLLoss", {x}, {x}),
            "GaussianNLLLoss: expected 2 outputs and 1 target, got 1 output and 1 target");
  EXPECT_EQ(ErrorOf("CTCLoss", {x}, {x}),
            "CTCLoss: expected 1 output and 3 targets, got 1 output and 1 target");
  EXPECT_EQ(ErrorOf("TripletMarginLoss", {x, x}, {}),
            "TripletMarginLoss: expected 3 outputs and 0 targets, got 2 outputs and 0 targets");
}

}  // namespace
}  // namespace strata
