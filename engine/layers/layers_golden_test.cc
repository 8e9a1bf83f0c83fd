// Tests every layer against PyTorch: parameters, initial values, outputs, gradients, statistics.
// testdata/make_layers.py made the data and explains it.
#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/layers/inputs.h"
#include "engine/layers/kept_tokens.h"
#include "engine/layers/layer.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/testing.h"

namespace strata {

/// How a failed test shows its case.
void PrintTo(const Value& golden, std::ostream* out) {
  *out << golden["type"].as_string() << " " << golden["args"].ToLua();
}

namespace {

at::Tensor Formula(const std::vector<int64_t>& shape, int64_t multiplier, int64_t modulus) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  const at::Tensor i = at::arange(n, at::kLong);
  return ((i * multiplier).remainder(modulus).to(at::kDouble) / modulus - 0.5)
      .to(at::kFloat)
      .view(shape);
}

at::Tensor Tokens(const std::vector<int64_t>& shape, int64_t vocabulary) {
  int64_t n = 1;
  for (int64_t size : shape) n *= size;
  return (at::arange(n, at::kLong) * 31).remainder(vocabulary).view(shape);
}

/// The golden's [norm, six elements] of a tensor.
std::vector<double> Fingerprint(const at::Tensor& tensor) {
  const at::Tensor flat = tensor.detach().to(at::kDouble).reshape({-1});
  std::vector<double> fingerprint = {flat.norm().item<double>()};
  const int64_t last = flat.numel() - 1;
  for (int64_t k = 0; k < 6; ++k) fingerprint.push_back(flat[last * k / 5].item<double>());
  return fingerprint;
}

void ExpectFingerprint(const at::Tensor& tensor, const Value& golden, double tolerance,
                       const std::string& what) {
  const std::vector<double> ours = Fingerprint(tensor);
  ASSERT_EQ(ours.size(), golden.as_list().size());
  for (size_t i = 0; i < ours.size(); ++i) {
    const double theirs = golden.as_list()[i].as_double();
    EXPECT_LE(std::abs(ours[i] - theirs), tolerance * (1 + std::abs(theirs)))
        << what << ", number " << i << ": " << ours[i] << " against " << theirs;
  }
}

/// The layer of a golden entry, with the arguments that Lua would pass. Python's None becomes
/// "none" where an argument has that choice.
LayerSpec SpecOf(const Value& golden) {
  Value::Map named;
  for (const auto& [name, value] : golden["args"].as_map()) {
    named.emplace_back(name, value.is_null() ? Value("none") : value);
  }
  return MakeLayer(golden["type"].as_string(), {}, named, {}, "");
}

std::unique_ptr<Layer> Build(const Value& golden) {
  RandomScope scope(static_cast<uint64_t>(golden["seed"].as_int()));
  return BuildLayer(SpecOf(golden), nullptr);
}

Tensors Inputs(const Value& golden) {
  Tensors inputs;
  for (const Value& shape : golden["inputs"].as_list()) {
    const int64_t vocabulary = golden["vocabulary"].as_int();
    inputs.push_back(vocabulary > 0 ? Tokens(shape.as_ints(), vocabulary)
                                    : Formula(shape.as_ints(), 7919, 1009).set_requires_grad(true));
  }
  if (!golden.Has("masks")) return inputs;
  for (const auto& [name, shape] : golden["masks"].as_map()) {
    const auto names = InputNames(golden["type"].as_string());
    const auto place = static_cast<size_t>(std::ranges::find(names, name) - names.begin());
    if (inputs.size() <= place) inputs.resize(place + 1);
    inputs.at(place) = Tokens(shape.as_ints(), 3).eq(1);
  }
  return inputs;
}

/// Runs the backward of all outputs, with gradients made by formulas.
void Backward(const Tensors& outputs) {
  if (!outputs[0].requires_grad()) return;
  at::Tensor sum = at::zeros({});
  for (const at::Tensor& output : outputs) {
    sum = sum.add(output.mul(Formula(output.sizes().vec(), 104729, 997)).sum());
  }
  sum.backward();
}

class Golden : public ::testing::TestWithParam<Value> {};

TEST_P(Golden, HasTheParametersThatWereDeclared) {
  const auto layer = Build(GetParam());
  std::vector<ParameterSpec> built;
  for (const Parameter& p : layer->parameters()) {
    built.push_back({.name = p.name, .shape = p.value.sizes().vec()});
    EXPECT_TRUE(p.value.requires_grad() && p.value.is_leaf()) << p.name;
  }
  for (const LayerBuffer& b : layer->buffers()) {
    const bool counts = b.value.scalar_type() == at::kLong;
    built.push_back(
        {b.name, b.value.sizes().vec(), counts ? DType::kInt64 : DType::kFloat32, true});
  }
  std::vector<ParameterSpec> declared = ParametersOf(SpecOf(GetParam()));
  for (ParameterSpec& spec : declared) spec.share = {};  // this test has no model axis
  EXPECT_EQ(built, declared);
}

/// True for parameters with normal initial values. Those are compared with a tolerance, since they
/// are made by logarithms, whose last bit depends on the processor.
bool IsNormal(const std::string& type, const std::string& parameter) {
  return type.starts_with("Embedding") || parameter == "bias_k" || parameter == "bias_v";
}

TEST_P(Golden, StartsWithPyTorchsValues) {
  const auto layer = Build(GetParam());
  const Value& initial = GetParam()["initial"];
  size_t next = 0;
  for (const Parameter& p : layer->parameters()) {
    EXPECT_EQ(p.name, initial.as_map().at(next++).first);
    const double tolerance = IsNormal(GetParam()["type"].as_string(), p.name) ? 1e-6 : 1e-13;
    ExpectFingerprint(p.value, initial[p.name], tolerance, p.name);
  }
  EXPECT_EQ(next, initial.as_map().size());
}

TEST_P(Golden, ComputesWhatPyTorchComputes) {
  const Value& golden = GetParam();
  const auto layer = Build(golden);
  testing::FlatBuffers flat(*layer);
  const Tensors inputs = Inputs(golden);
  Pass pass = testing::TrainingPass();
  pass.training = golden["training"].as_bool();

  RandomScope scope(static_cast<uint64_t>(golden["seed"].as_int() + 1));
  const Tensors outputs = layer->Forward(inputs, pass);
  ASSERT_EQ(outputs[0].sizes().vec(), golden["output_shape"].as_ints());
  ExpectFingerprint(outputs[0], golden["output"], 1e-5, "output");
  const Value::List more = golden.Has("more") ? golden["more"].as_list() : Value::List();
  ASSERT_EQ(outputs.size(), 1 + more.size());
  for (size_t i = 0; i < more.size(); ++i) {
    ExpectFingerprint(outputs[i + 1], more[i], 1e-5, Str("output ", i + 1));
  }
  Backward(outputs);

  for (size_t i = 0; i < golden["input_grads"].as_list().size(); ++i) {
    ExpectFingerprint(inputs[i].grad(), golden["input_grads"].as_list()[i], 1e-5, "input grad");
  }
  for (const Parameter& p : layer->parameters()) {
    ExpectFingerprint(p.grad, golden["grads"][p.name], 1e-5, "grad of " + p.name);
  }
  for (const LayerBuffer& b : layer->buffers()) {
    ExpectFingerprint(b.value, golden["buffers"][b.name], 1e-5, b.name);
  }
}

/// The dim of the samples in an input that is a sequence.
int64_t BatchDim(const LayerSpec& spec) {
  const Value* const batch_first = spec.args.Find("batch_first");
  return batch_first && !batch_first->as_bool() ? 1 : 0;
}

TEST_P(Golden, KeepsTheKeysAndValuesThatItDeclares) {
  constexpr int64_t kRoom = 9;  // tokens, more than any sequence here has
  const at::NoGradGuard no_grad;
  const auto layer = Build(GetParam());
  testing::FlatBuffers flat(*layer);
  const Tensors inputs = Inputs(GetParam());
  KeptTokens kept(kRoom);
  const TokenScope scope(&kept);
  layer->Forward(inputs, {.training = false});
  const LayerSpec spec = SpecOf(GetParam());
  const int64_t declared = KeptTokenBytes(spec, 1, DType::kFloat32);
  EXPECT_EQ(kept.bytes(), declared == 0 ? 0 : kRoom * declared * inputs[0].size(BatchDim(spec)));
}

TEST_P(Golden, GivesTheSameTokenByTokenWhereItSaysSo) {
  const Tensors inputs = Inputs(GetParam());
  const bool has_tokens = inputs[0].dim() > 2 || !inputs[0].is_floating_point();
  if (!IsTokenWise(SpecOf(GetParam())) || inputs.size() > 1 || !has_tokens) return;
  const at::NoGradGuard no_grad;
  const auto layer = Build(GetParam());
  testing::FlatBuffers flat(*layer);
  const Pass pass = {.training = false};
  const at::Tensor whole = layer->Forward({inputs[0].clone()}, pass)[0];
  const int64_t tokens = inputs[0].size(1);
  KeptTokens kept(tokens);
  const TokenScope scope(&kept);
  for (int64_t begin = 0, count = tokens - 2; begin < tokens; begin += count, count = 1) {
    const at::Tensor part = inputs[0].narrow(1, begin, count).clone();
    EXPECT_TRUE(layer->Forward({part}, pass)[0].allclose(whole.narrow(1, begin, count), 1e-5, 1e-6))
        << "token " << begin;
    kept.Advance(count);
  }
}

TEST_P(Golden, DrawsAndGivesStatesWhereItSaysSo) {
  const LayerSpec spec = SpecOf(GetParam());
  const auto layer = Build(GetParam());
  testing::FlatBuffers flat(*layer);
  const RandomScope scope(3);
  const Tensors outputs = layer->Forward(Inputs(GetParam()), testing::TrainingPass());
  EXPECT_EQ(HasDrawn(), MayDraw(spec));
  EXPECT_EQ(outputs.size() > 1, FindLayerType(spec.type)->gives_states);
}

/// The gradients after two micro-batches, as a stage computes them: by the action B, or by I and W
/// (`split`).
at::Tensor GradsOfTwo(const Value& golden, bool split) {
  const auto layer = Build(golden);
  testing::FlatBuffers flat(*layer);
  for (uint64_t micro_batch = 0; micro_batch < 2; ++micro_batch) {
    Pass pass = testing::TrainingPass();
    pass.weight_gradients->set_deferred(split);
    RandomScope scope(micro_batch);
    Backward(layer->Forward(Inputs(golden), pass));
    pass.weight_gradients->Run();
  }
  return flat.grads;
}

TEST_P(Golden, SplitBackwardHasTheSameBits) {
  EXPECT_TRUE(testing::SameBits(GradsOfTwo(GetParam(), true), GradsOfTwo(GetParam(), false)));
}

TEST_P(Golden, RecomputingHasTheSameBitsAndCountsNothingTwice) {
  const Value& golden = GetParam();
  const auto layer = Build(golden);
  testing::FlatBuffers flat(*layer);
  Pass pass = testing::TrainingPass();
  const auto run = [&] {
    RandomScope scope(5);
    return layer->Forward(Inputs(golden), pass)[0];
  };
  at::Tensor first;
  {
    const at::NoGradGuard no_grad;
    first = run();
  }
  std::vector<at::Tensor> counted;
  for (const LayerBuffer& b : layer->buffers()) counted.push_back(b.value.clone());
  pass.recomputing = true;
  EXPECT_TRUE(testing::SameBits(run(), first));
  for (size_t i = 0; i < counted.size(); ++i) {
    EXPECT_TRUE(testing::SameBits(layer->buffers()[i].value, counted[i]));
  }
}

TEST_P(Golden, AFrozenLayerGivesOnlyTheInputsGradient) {
  const Value& golden = GetParam();
  LayerSpec spec = SpecOf(golden);
  spec.frozen = true;
  RandomScope scope(static_cast<uint64_t>(golden["seed"].as_int()));
  const auto layer = BuildLayer(spec, nullptr);
  testing::FlatBuffers flat(*layer);
  for (const Parameter& p : layer->parameters()) {
    EXPECT_TRUE(p.frozen && !p.value.requires_grad() && !p.grad.defined()) << p.name;
  }
  const Tensors inputs = Inputs(golden);
  Pass pass = testing::TrainingPass();
  pass.weight_gradients->set_deferred(true);
  const at::Tensor output = layer->Forward(inputs, pass)[0];
  EXPECT_EQ(output.requires_grad(), inputs[0].requires_grad());
  if (output.requires_grad()) output.sum().backward();
  EXPECT_EQ(pass.weight_gradients->kept(), 0u);
  EXPECT_TRUE(inputs[0].grad().defined() == inputs[0].requires_grad());
}

std::vector<Value> Cases() {
  std::ifstream file("engine/layers/testdata/layers.json");
  const std::string text(std::istreambuf_iterator<char>(file), {});
  return Value::FromJson(text)["cases"].as_list();
}

TEST(Goldens, HaveAllLayersOfOneTensor) {
  std::set<std::string> types;
  for (const Value& golden : Cases()) types.insert(golden["type"].as_string());
  for (const LayerType& type : LayerTypes()) {
    const bool is_layer = type.library == "nn" && !type.is_loss && !type.holds_layers;
    EXPECT_TRUE(!is_layer || !type.stands_for.empty() || types.contains(type.name)) << type.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Layers, Golden, ::testing::ValuesIn(Cases()), [](const auto& info) {
  return Str(info.index, info.param["type"].as_string());
});

}  // namespace
}  // namespace strata
