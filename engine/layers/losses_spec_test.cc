// Tests which shapes of outputs and targets the declarations of the losses accept. They must be
// those that losses.cc accepts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

#include "engine/base/text.h"
#include "engine/job/testing_job.h"
#include "engine/layers/targets.h"

namespace strata {
namespace {

using testing::HasSubstr;

using Shape = std::vector<int64_t>;

const TensorSpec kLogits = {{8, 10}, DType::kFloat32};
const TensorSpec kClasses = {{8}, DType::kInt64};
const Value kTwo = Value::List{0.5, 0.5};

std::string LossError(const LayerSpec& loss, const TensorSpec& output, const TensorSpec& target) {
  return ErrorOf([&] { CheckLoss(loss, {Layer("Linear", {64, 10})}, {output}, target); });
}

bool Takes(const LayerSpec& loss, const TensorSpec& output, const TensorSpec& target) {
  return LossError(loss, output, target).empty();
}

std::vector<LayerSpec> ClassLosses() { return {Layer("CrossEntropyLoss"), Layer("NLLLoss")}; }

std::vector<LayerSpec> ElementLosses() {
  return {Layer("MSELoss"),      Layer("L1Loss"),        Layer("BCEWithLogitsLoss"),
          Layer("SmoothL1Loss"), Layer("HuberLoss"),     Layer("BCELoss"),
          Layer("KLDivLoss"),    Layer("PoissonNLLLoss")};
}

// ---- classes ----

TEST(ClassLosses, TakeLabelsOfAnyIntegerType) {
  for (const LayerSpec& loss : ClassLosses()) {
    for (DType dtype : {DType::kInt64, DType::kInt32, DType::kInt16, DType::kInt8, DType::kUInt8}) {
      EXPECT_TRUE(Takes(loss, kLogits, {{8}, dtype})) << loss.type << " " << DTypeName(dtype);
    }
    for (DType dtype : {DType::kBool, DType::kFloat32, DType::kBFloat16}) {
      EXPECT_FALSE(Takes(loss, kLogits, {{8}, dtype})) << loss.type << " " << DTypeName(dtype);
    }
  }
}

TEST(ClassLosses, HaveTheirClassesInDim1OrInTheLast) {
  struct Case {
    Shape output, labels;
    bool taken;
  };
  const Case cases[] = {
      {{8, 10}, {8}, true},
      {{8, 10}, {10}, false},
      {{8, 10}, {8, 1}, false},
      {{8, 10}, {}, false},
      {{8, 10, 5}, {8, 5}, true},   // PyTorch's form
      {{8, 10, 5}, {8, 10}, true},  // the form of tokens
      {{8, 10, 5}, {10, 5}, false},
      {{8, 10, 5}, {8}, false},
      {{8, 10, 5}, {40}, false},
      {{8, 4, 4}, {8, 4}, false},  // either form: nothing says which
      {{2, 3, 4, 5}, {2, 4, 5}, true},
      {{2, 3, 4, 5}, {2, 3, 4}, true},
      {{2, 3, 4, 5}, {2, 3, 5}, false},
      {{1, 1}, {1}, true},
      {{0, 10}, {0}, true},
  };
  for (const LayerSpec& loss : ClassLosses()) {
    for (const Case& c : cases) {
      EXPECT_EQ(Takes(loss, {c.output, DType::kFloat32}, {c.labels, DType::kInt64}), c.taken)
          << loss.type << " " << FormatShape(c.output) << " " << FormatShape(c.labels);
    }
  }
}

TEST(ClassLosses, WeightCountsTheClassesOfTheDimThatFits) {
  for (const char* type : {"CrossEntropyLoss", "NLLLoss"}) {
    const LayerSpec loss = Layer(type, {kTwo});
    const auto takes = [&](Shape output, Shape labels) {
      return Takes(loss, {std::move(output), DType::kFloat32}, {std::move(labels), DType::kInt64});
    };
    EXPECT_TRUE(takes({8, 2}, {8}));
    EXPECT_FALSE(takes({8, 3}, {8}));
    EXPECT_TRUE(takes({8, 2, 5}, {8, 5})) << "dim 1 has the classes";
    EXPECT_FALSE(takes({8, 5, 2}, {8, 2}));
    EXPECT_TRUE(takes({8, 5, 2}, {8, 5})) << "the last dim has the classes";
    EXPECT_FALSE(takes({8, 2, 5}, {8, 2}));
  }
}

TEST(CrossEntropy, TakesProbabilities) {
  const LayerSpec loss = Layer("CrossEntropyLoss");
  EXPECT_TRUE(Takes(loss, kLogits, kLogits));
  EXPECT_TRUE(Takes(loss, kLogits, {{8, 10}, DType::kFloat64}));
  const TensorSpec texts = {{8, 10, 5}, DType::kFloat32};
  EXPECT_FALSE(Takes(loss, texts, texts)) << "two dims may have the classes";
  EXPECT_TRUE(Takes(Layer("CrossEntropyLoss", {}, {{"class_dim", 1}}), texts, texts));
  EXPECT_FALSE(Takes(loss, kLogits, {{8, 1}, DType::kFloat32})) << "nothing is broadcast";
  EXPECT_FALSE(Takes(loss, kLogits, {{8, 10}, DType::kInt64})) << "neither labels nor shares";
  EXPECT_FALSE(Takes(Layer("NLLLoss"), kLogits, kLogits));
}

TEST(CrossEntropy, AnIgnoredClassNeedsLabels) {
  const auto loss = [](int64_t ignored) {
    return Layer("CrossEntropyLoss", {}, {{"ignore_index", ignored}});
  };
  EXPECT_TRUE(Takes(loss(0), kLogits, kClasses));
  EXPECT_TRUE(Takes(loss(-1), kLogits, kLogits));
  EXPECT_THAT(LossError(loss(0), kLogits, kLogits),
              HasSubstr("expects integer labels, not probabilities, since ignore_index = 0"));
}

// ---- elements ----

TEST(ElementLosses, TakeATargetOfTheSameShapeAndAnyType) {
  for (const LayerSpec& loss : ElementLosses()) {
    for (const Shape& shape : {Shape{8, 10}, Shape{8}, Shape{}, Shape{0, 3}, Shape{2, 3, 4, 5}}) {
      for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kInt64, DType::kBool}) {
        EXPECT_TRUE(Takes(loss, {shape, DType::kFloat32}, {shape, dtype}))
            << loss.type << " " << FormatShape(shape);
      }
    }
  }
}

TEST(ElementLosses, BroadcastNothing) {
  for (const LayerSpec& loss : ElementLosses()) {
    for (const Shape& shape : {Shape{8}, Shape{8, 1}, Shape{1, 10}, Shape{10, 8}, Shape{}}) {
      EXPECT_FALSE(Takes(loss, kLogits, {shape, DType::kFloat32}))
          << loss.type << " " << FormatShape(shape);
    }
  }
}

TEST(BceWithLogits, WeightsLieAlongTheLastDim) {
  for (const char* name : {"weight", "pos_weight"}) {
    const auto takes = [&](const Value& weight, const Shape& shape) {
      const LayerSpec loss = Layer("BCEWithLogitsLoss", {}, {{name, weight}});
      const TensorSpec both = {shape, DType::kFloat32};
      return Takes(loss, both, both);
    };
    EXPECT_TRUE(takes(kTwo, {8, 2})) << name;
    EXPECT_TRUE(takes(kTwo, {2})) << name;
    EXPECT_TRUE(takes(Value::List{0.5}, {8, 10})) << name << ": one holds for all";
    EXPECT_FALSE(takes(kTwo, {2, 8})) << name;
    EXPECT_FALSE(takes(kTwo, {8, 1})) << name << ": weights do not widen the output";
    EXPECT_FALSE(takes(Value::List{0.5}, {})) << name << ": nor give it a dim";
  }
}

// ---- all ----

TEST(Losses, WantFloatingOutputs) {
  std::vector<LayerSpec> losses = ClassLosses();
  for (const LayerSpec& loss : ElementLosses()) losses.push_back(loss);
  for (const LayerSpec& loss : losses) {
    for (DType dtype : {DType::kInt64, DType::kUInt8, DType::kBool}) {
      EXPECT_THAT(LossError(loss, {{8, 10}, dtype}, kClasses),
                  HasSubstr("expects floating numbers, got " + std::string(DTypeName(dtype))));
    }
  }
}

TEST(Losses, TakeOneOutput) {
  for (const LayerSpec& loss : {Layer("CrossEntropyLoss"), Layer("MSELoss")}) {
    for (const TensorSpecs& output : {TensorSpecs{}, TensorSpecs{kLogits, kLogits}}) {
      EXPECT_THAT(ErrorOf([&] { CheckLoss(loss, {}, output, kClasses); }),
                  HasSubstr("cannot compare the input, " + ToString(output) +
                            ", with the target int64 (8,): expects one output and one target"));
    }
  }
}

TEST(Losses, OfTheScriptTakeAnything) {
  const LayerSpec loss = FunctionLayer("net.lua:7");
  EXPECT_EQ(ErrorOf([&] {
              CheckLoss(loss, {}, {kLogits, kLogits}, {{1, 2, 3}, DType::kBool});
            }),
            "");
}

/// A loss, an output and a target that do not fit, and the error.
struct Misfit {
  LayerSpec loss;
  TensorSpec output, target;
  std::string loss_text, reason;
};

TEST(CheckLoss, NamesTheLossTheLastLayerAndBothShapes) {
  const TensorSpec tokens = {{8, 5, 10}, DType::kFloat32}, square = {{8, 4, 4}, DType::kFloat32};
  const std::vector<Misfit> misfits = {
      {Layer("NLLLoss"), kLogits, kLogits, "NLLLoss()", "expects integer labels (8,)"},
      {Layer("NLLLoss"), tokens, kClasses, "NLLLoss()",
       "expects integer labels (8, 10) or, with the classes in the last dim, (8, 5)"},
      {Layer("NLLLoss"), square, kClasses, "NLLLoss()", "expects integer labels (8, 4)"},
      {Layer("CrossEntropyLoss"),
       kLogits,
       {{8, 10}, DType::kInt64},
       "CrossEntropyLoss()",
       "expects integer labels (8,), or probabilities (8, 10)"},
      {Layer("CrossEntropyLoss"),
       {{8}, DType::kFloat32},
       kClasses,
       "CrossEntropyLoss()",
       "expects (batch, classes, ...), got (8,)"},
      {Layer("CrossEntropyLoss", {kTwo}), kLogits, kClasses, "CrossEntropyLoss(weight=(0.5, 0.5))",
       "expects 2 classes in dim 1, as many as weight has, got (8, 10)"},
      {Layer("CrossEntropyLoss", {kTwo}),
       tokens,
       {{8, 5}, DType::kInt64},
       "CrossEntropyLoss(weight=(0.5, 0.5))",
       "expects 2 classes in dim 2, as many as weight has, got (8, 5, 10)"},
      {Layer("MSELoss"), kLogits, kClasses, "MSELoss()",
       "expects a target in the output's shape (8, 10); nothing is broadcast"},
      {Layer("BCEWithLogitsLoss", {}, {{"pos_weight", kTwo}}), kLogits, kLogits,
       "BCEWithLogitsLoss(pos_weight=(0.5, 0.5))",
       "expects last dim 2, as many as pos_weight has, got (8, 10)"},
  };
  for (const Misfit& misfit : misfits) {
    EXPECT_EQ(
        LossError(misfit.loss, misfit.output, misfit.target),
        Str("the loss ", misfit.loss_text, " cannot compare the output of layer 0 Linear(64, 10), ",
            misfit.output.ToString(), ", with the target ", misfit.target.ToString(), ": ",
            misfit.reason));
  }
}

TEST(CheckTargets, OfSeveralTensors) {
  const TensorSpec logs = {{9, 5, 4}, DType::kFloat32}, labels = {{5, 3}, DType::kInt64};
  const TensorSpec lengths = {{5}, DType::kInt64}, x = {{5, 4}, DType::kFloat32};
  struct Row {
    const char* loss;
    TensorSpecs output, targets;
    std::string reason;
  };
  const std::vector<Row> table = {
      {"CTCLoss", {logs}, {labels, lengths, lengths}, ""},
      {"CTCLoss",
       {logs},
       {labels, {{4}, DType::kInt64}, lengths},
       "expects integer labels (5, length), lengths of the outputs (5,) and of the labels (5,)"},
      {"CTCLoss",
       {x},
       {labels, lengths, lengths},
       "expects logarithms of probabilities (time, batch, classes), got (5, 4)"},
      {"CTCLoss",
       {logs},
       {labels},
       "expects one output and three targets: labels, lengths of the outputs, lengths of the "
       "labels"},
      {"TripletMarginLoss", {x, x, x}, {}, ""},
      {"TripletMarginLoss", {x, x, x}, {lengths}, ""},
      {"TripletMarginLoss",
       {x, x, logs},
       {},
       "expects anchor, positive and negative in one shape (..., features)"},
      {"CosineEmbeddingLoss", {x, x}, {lengths}, ""},
      {"CosineEmbeddingLoss",
       {x, x},
       {x},
       "expects two outputs (batch, features) and a target (batch,) of 1 and -1"},
      {"GaussianNLLLoss", {x, x}, {x}, ""},
      {"GaussianNLLLoss", {x, {{5}, DType::kFloat32}}, {x}, ""},
      {"GaussianNLLLoss",
       {x, {{4}, DType::kFloat32}},
       {x},
       "expects variances (positive), as the second output, in the means' shape (5, 4)"},
      {"GaussianNLLLoss", {x}, {x}, "expects two outputs, means and variances, and one target"},
  };
  for (const Row& row : table) {
    const std::string error =
        ErrorOf([&] { CheckTargets(Layer(row.loss), {}, row.output, row.targets); });
    EXPECT_EQ(error.empty(), row.reason.empty()) << row.loss << ": " << error;
    EXPECT_THAT(error, testing::EndsWith(row.reason));
  }
  EXPECT_THAT(ErrorOf([&] {
                CheckTargets(Layer("CTCLoss"), {}, {logs}, {labels, labels});
              }),
              HasSubstr(", with the targets int64 (5, 3) and int64 (5, 3): expects"));
}

TEST(FittingClassDims, LabelsLackTheDimOfTheClasses) {
  using Dims = std::vector<int>;
  const auto labels = [](const Shape& output, const Shape& target,
                         std::optional<int64_t> given = {}) {
    return FittingClassDims(output, target, /*are_labels=*/true, given);
  };
  EXPECT_EQ(labels({5, 4}, {5}), Dims({1})) << "one dim, though it is the last as well";
  EXPECT_EQ(labels({5, 3, 4}, {5, 4}), Dims({1}));
  EXPECT_EQ(labels({5, 3, 4}, {5, 3}), Dims({2}));
  EXPECT_EQ(labels({5, 4, 4}, {5, 4}), Dims({1, 2}));
  EXPECT_EQ(labels({5, 3, 3, 3}, {5, 3, 3}), Dims({1, 2, 3}));
  EXPECT_EQ(labels({5, 3, 4, 4}, {5, 3, 4}), Dims({2, 3}));
  EXPECT_EQ(labels({5, 3, 3, 4}, {5, 3, 4}), Dims({1, 2}));
  EXPECT_EQ(labels({5, 3, 2, 4}, {5, 3, 4}), Dims()) << "dim 2 has to be said";
  EXPECT_EQ(labels({5, 3, 2, 4}, {5, 3, 4}, 2), Dims({2}));
  EXPECT_EQ(labels({5, 4, 4}, {5, 4}, 1), Dims({1}));
  EXPECT_EQ(labels({5, 4, 4}, {5, 4}, -1), Dims({2}));
  EXPECT_EQ(labels({5, 3, 4, 4}, {5, 3, 4}, -2), Dims({2}));
  for (const int64_t wrong : {0, 3, -3, 2}) {
    EXPECT_EQ(labels({5, 3, 4}, {5, 4}, wrong), Dims()) << wrong;
  }
  EXPECT_EQ(labels({5}, {5}), Dims());
}

TEST(FittingClassDims, ProbabilitiesHaveTheWholeShape) {
  using Dims = std::vector<int>;
  const auto probabilities = [](const Shape& output, const Shape& target,
                                std::optional<int64_t> given = {}) {
    return FittingClassDims(output, target, /*are_labels=*/false, given);
  };
  EXPECT_EQ(probabilities({5, 4}, {5, 4}), Dims({1}));
  EXPECT_EQ(probabilities({5, 3, 4}, {5, 3, 4}), Dims({1, 2})) << "whatever the lengths";
  EXPECT_EQ(probabilities({5, 3, 4}, {5, 3, 4}, -1), Dims({2}));
  EXPECT_EQ(probabilities({5, 3, 4}, {5, 4, 3}, -1), Dims());
}

TEST(CheckLoss, RefusesTargetsThatFitTwoDimsUntilTheScriptSaysWhich) {
  const TensorSpec square = {{8, 4, 4}, DType::kFloat32}, labels = {{8, 4}, DType::kInt64};
  for (const char* type : {"CrossEntropyLoss", "NLLLoss"}) {
    EXPECT_EQ(
        LossError(Layer(type), square, labels),
        Str("the loss ", type, "() cannot compare the output of layer 0 Linear(64, 10), ",
            "float32 (8, 4, 4), with the target int64 (8, 4): the output (8, 4, 4) may have the ",
            "classes in dim 1, as in PyTorch, or in its last dim, with a row of scores for each ",
            "label, and the target (8, 4) fits each of these; say which: nn.", type,
            "{class_dim = 1} or nn.", type, "{class_dim = -1}"));
    for (const int dim : {1, -1, 2}) {
      EXPECT_TRUE(Takes(Layer(type, {}, {{"class_dim", dim}}), square, labels)) << type << dim;
    }
  }
  EXPECT_THAT(
      LossError(Layer("NLLLoss"), {{8, 3, 4, 4}, DType::kFloat32}, {{8, 3, 4}, DType::kInt64}),
      HasSubstr("may have the classes in dim 2 or in its last dim, with a row"));
  const TensorSpec output = {{8, 3, 4}, DType::kFloat32};
  EXPECT_THAT(LossError(Layer("CrossEntropyLoss"), output, output), HasSubstr("fits each"));
  EXPECT_TRUE(Takes(Layer("CrossEntropyLoss", {}, {{"class_dim", 1}}), output, output));
}

TEST(CheckLoss, SaysWhatClassDimMayBe) {
  const TensorSpec output = {{8, 3, 4}, DType::kFloat32}, labels = {{8, 4}, DType::kInt64};
  const auto error = [&](int dim) {
    return LossError(Layer("CrossEntropyLoss", {}, {{"class_dim", dim}}), output, labels);
  };
  for (const int dim : {0, 3, -3}) {
    EXPECT_THAT(error(dim), HasSubstr(Str("class_dim = ", dim, " is no dim of classes of the ",
                                          "output (8, 3, 4): expects 1 to 2, or -1 to -2")));
  }
  EXPECT_THAT(error(-1), HasSubstr("expects integer labels (8, 3) (the classes are in dim -1), or "
                                   "probabilities (8, 3, 4)"));
  EXPECT_EQ(error(-2), "");
}

TEST(CheckLoss, WeighsTheClassesOfProbabilitiesInTheirDim) {
  const TensorSpec output = {{5, 3, 2}, DType::kFloat32};
  const auto error = [&](int dim) {
    const LayerSpec loss =
        Layer("CrossEntropyLoss", {}, {{"weight", Value::List{0.5, 0.5}}, {"class_dim", dim}});
    return ErrorOf([&] { CheckLoss(loss, {}, {output}, output); });
  };
  EXPECT_THAT(error(1), HasSubstr("2 classes"));
  EXPECT_EQ(error(-1), "");
}

TEST(CheckLoss, SaysWhereTheLossStands) {
  const LayerSpec loss = MakeLayer("MSELoss", {}, {}, {}, "net.lua:9");
  EXPECT_EQ(ErrorOf([&] { CheckLoss(loss, {}, {kLogits}, kClasses); }),
            "net.lua:9: the loss MSELoss() cannot compare the input, float32 (8, 10), with the "
            "target int64 (8,): expects a target in the output's shape (8, 10); nothing is "
            "broadcast");
}

TEST(CheckLoss, GivesAScalarOfTheOutputsType) {
  const TensorSpec output = {{8, 10}, DType::kFloat64};
  EXPECT_EQ(InferLayer(Layer("MSELoss"), {output, kLogits}, nullptr),
            TensorSpecs({{{}, DType::kFloat64}}));
}

// ---- properties ----

/// A random shape (N, C, d1, ...) whose sizes are often equal.
Shape AnyOutput() {
  const int dims = *rc::gen::inRange(2, 5);
  return *rc::gen::container<Shape>(static_cast<size_t>(dims), rc::gen::inRange<int64_t>(1, 4));
}

/// States the rule in another way: there is exactly one dim that completes the labels' shape to the
/// output's, and it is dim 1 or the last one.
RC_GTEST_PROP(ClassLosses, LabelsLackOneDim, ()) {
  const Shape output = AnyOutput();
  const auto labels = *rc::gen::container<Shape>(
      output.size() - 1 + *rc::gen::element<size_t>(0, 0, 0, 1), rc::gen::inRange<int64_t>(1, 4));
  std::set<size_t> fitting;
  for (size_t dim = 1; dim < output.size(); ++dim) {
    Shape with = labels;
    if (dim <= with.size()) {
      with.insert(with.begin() + static_cast<std::ptrdiff_t>(dim), output[dim]);
    }
    if (with == output) fitting.insert(dim);
  }
  const bool is_certain = fitting == std::set{size_t{1}} || fitting == std::set{output.size() - 1};
  RC_ASSERT(Takes(Layer("NLLLoss"), {output, DType::kFloat32}, {labels, DType::kInt64}) ==
            is_certain);
}

/// Cross entropy is log_softmax followed by NLL, so both take the same labels.
RC_GTEST_PROP(ClassLosses, TakeTheSameLabels, ()) {
  const TensorSpec output = {AnyOutput(), DType::kFloat32};
  const TensorSpec labels = {
      *rc::gen::container<Shape>(output.shape.size() - 1, rc::gen::inRange<int64_t>(1, 4)),
      *rc::gen::element(DType::kInt64, DType::kUInt8, DType::kBool)};
  const Value weight = *rc::gen::element<Value>(Value(), kTwo);
  RC_ASSERT(Takes(Layer("NLLLoss", {weight}), output, labels) ==
            Takes(Layer("CrossEntropyLoss", {weight}), output, labels));
}

}  // namespace
}  // namespace strata
