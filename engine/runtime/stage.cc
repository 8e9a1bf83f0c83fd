#include "engine/runtime/stage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/layers/axis_scope.h"
#include "engine/layers/random.h"
#include "engine/runtime/torch_errors.h"
#include "engine/spec/layers.h"

namespace strata {
namespace {

/// Copies to an accelerator go through pinned memory, so that the host does not wait for them.
at::Tensor ToDevice(const at::Tensor& tensor, at::Device device) {
  if (tensor.device() == device) return tensor.detach();
  const bool pinned = tensor.device().is_cpu();
  return (pinned ? tensor.detach().pin_memory() : tensor.detach())
      .to(device, tensor.scalar_type(), /*non_blocking=*/pinned);
}

Tensors ToDevice(Tensors tensors, at::Device device) {
  for (at::Tensor& tensor : tensors) tensor = ToDevice(tensor, device);
  return tensors;
}

Tensors WithoutGraph(const Tensors& tensors) {
  Tensors bare;
  bare.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) bare.push_back(tensor.detach());
  return bare;
}

std::vector<Layer*> Chain(const std::vector<StageLayer>& layers) {
  std::vector<Layer*> chain;
  for (const StageLayer& layer : layers) chain.push_back(layer.layer.get());
  return chain;
}

}  // namespace

Stage::Stage(StageParts parts, const GroupOf& group_of)
    : parts_(std::move(parts)), parameters_(parts_.layers, group_of, parts_.device) {
  AllowOverwriting(Chain(parts_.layers));
}

void Stage::Begin(const RunSpec& run) {
  run_ = &run;
  micro_batches_.clear();
  micro_batches_.resize(run.micro_batches());
  if (run.training) parameters_.ZeroGradients();
}

void Stage::SetInput(int m, Tensors input) {
  MicroBatch& micro_batch = micro_batches_[m];
  STRATA_CHECK(micro_batch.input.empty()) << "stage " << number() << ", micro-batch " << m;
  micro_batch.input = ToDevice(std::move(input), parts_.device);
}

void Stage::SetTarget(int m, Tensors target) {
  micro_batches_[m].target = ToDevice(std::move(target), parts_.device);
}

void Stage::SetOutputGradient(int m, Tensors gradient) {
  micro_batches_[m].output_gradient = std::move(gradient);
}

void Stage::Forward(int m, Keep keep) {
  MicroBatch& micro_batch = micro_batches_[m];
  const bool with_graph = run_->training && keep == Keep::kActivations;
  const at::AutoGradMode grad_mode(with_graph);
  Pass pass;
  pass.training = run_->training;
  if (with_graph) pass.weight_gradients = std::make_shared<WeightGradients>();
  micro_batch.weight_gradients = pass.weight_gradients;
  const Tensors output = RunLayers(m, pass);
  CheckOutput(m, output);
  if (is_last()) ComputeLoss(m, output);
  if (!is_last()) micro_batch.output = WithoutGraph(output);
  if (is_last() && run_->keep_outputs) {
    micro_batch.output = WithoutGraph(parts_.loss->WholeOutput(output));
  }
  if (with_graph && !is_last()) KeepRoots(micro_batch, output);
  if (!run_->training) micro_batch.input.clear();
}

void Stage::Recompute(int m) {
  MicroBatch& micro_batch = micro_batches_[m];
  const at::AutoGradMode grad_mode(true);
  Pass pass;
  pass.recomputing = true;
  pass.weight_gradients = micro_batch.weight_gradients = std::make_shared<WeightGradients>();
  const Tensors output = RunLayers(m, pass);
  if (is_last()) {
    ComputeLoss(m, output);
  } else {
    KeepRoots(micro_batch, output);
  }
}

void Stage::Backward(int m) {
  RunBackward(m, /*defer_weights=*/false);
  micro_batches_[m].weight_gradients = nullptr;
}

void Stage::BackwardInput(int m) { RunBackward(m, /*defer_weights=*/true); }

void Stage::BackwardWeights(int m) {
  TranslateErrors([&] { return Str("stage ", number(), ", weight gradients of micro-batch ", m); },
                  [&] { micro_batches_[m].weight_gradients->Run(); });
  micro_batches_[m].weight_gradients = nullptr;
}

Tensors Stage::TakeOutput(int m) { return std::exchange(micro_batches_[m].output, {}); }

Tensors Stage::TakeInputGradient(int m) {
  return std::exchange(micro_batches_[m].input_gradient, {});
}

Tensors Stage::RunLayers(int m, const Pass& pass) {
  Tensors x = micro_batches_[m].input;
  STRATA_CHECK(!x.empty()) << "stage " << number() << " has no input of micro-batch " << m;
  if (pass.weight_gradients && !is_first()) {
    for (at::Tensor& leaf : x) {
      if (leaf.is_floating_point()) leaf.requires_grad_(true);
    }
  }
  const AxisScope axis(parts_.axis);
  const int64_t global_micro_batch = run_->first_micro_batch + m;
  Kept kept(parts_.kept, parts_.begin, parts_.end);
  kept.TakeFromInput(x);
  for (StageLayer& layer : parts_.layers) {
    const RandomScope scope(ForwardSeed(parts_.seed, global_micro_batch, layer.index));
    kept.GiveTo(layer.index, x);
    x = TranslateErrors([&] { return layer.label; }, [&] { return layer.layer->Forward(x, pass); });
    kept.TakeFrom(layer.index, x);
  }
  kept.GiveToOutput(x);
  return x;
}

void Stage::ComputeLoss(int m, const Tensors& output) {
  MicroBatch& micro_batch = micro_batches_[m];
  const AxisScope axis(parts_.axis);
  const RandomScope scope(ForwardSeed(parts_.seed, run_->first_micro_batch + m, parts_.job_layers));
  TranslateErrors([] { return "the loss"; },
                  [&] {
                    const LossValue loss = parts_.loss->Compute(output, micro_batch.target);
                    if (at::GradMode::is_enabled()) KeepRoots(micro_batch, {loss.sum});
                    micro_batch.loss = {loss.sum.detach(), loss.weight};
                    if (run_->count_hits) {
                      micro_batch.hits = parts_.loss->CountHits(output, micro_batch.target);
                    }
                  });
}

void Stage::KeepRoots(MicroBatch& micro_batch, const Tensors& outputs) const {
  micro_batch.roots.clear();
  for (const at::Tensor& output : outputs) {
    if (!output.is_floating_point()) continue;
    micro_batch.roots.push_back(output.requires_grad()
                                    ? torch::autograd::impl::gradient_edge(output)
                                    : torch::autograd::Edge());
  }
}

void Stage::RunBackward(int m, bool defer_weights) {
  MicroBatch& micro_batch = micro_batches_[m];
  if (is_last()) micro_batch.output_gradient = {at::ones_like(micro_batch.loss.sum)};
  const Tensors gradients = std::exchange(micro_batch.output_gradient, {});
  const std::vector<torch::autograd::Edge> outputs = std::exchange(micro_batch.roots, {});
  STRATA_CHECK(gradients.size() == outputs.size())
      << gradients.size() << " gradients for " << outputs.size() << " outputs of stage " << number()
      << ", micro-batch " << m;
  torch::autograd::edge_list roots;
  torch::autograd::variable_list inputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].is_valid()) continue;  // nothing before it needs a gradient
    roots.push_back(outputs[i]);
    inputs.push_back(gradients[i]);
  }
  micro_batch.weight_gradients->set_deferred(defer_weights);
  TranslateErrors([&] { return Str("stage ", number(), ", backward of micro-batch ", m); },
                  [&] {
                    if (roots.empty()) return;
                    torch::autograd::Engine::get_default_engine().execute(
                        roots, inputs, /*keep_graph=*/false, /*create_graph=*/false,
                        /*accumulate_grad=*/true);
                  });
  CollectInputGradient(micro_batch);
}

void Stage::CollectInputGradient(MicroBatch& micro_batch) const {
  const Tensors inputs = std::exchange(micro_batch.input, {});
  micro_batch.target.clear();
  if (is_first()) return;
  for (const at::Tensor& input : inputs) {
    if (!input.is_floating_point()) continue;
    at::Tensor& gradient = input.mutable_grad();
    micro_batch.input_gradient.push_back(gradient.defined() ? std::move(gradient)
                                                            : at::zeros_like(input));
  }
}

void Stage::CheckOutput(int m, const Tensors& output) const {
  TensorSpecs expected = (*run_->boundaries[m])[number() + 1];
  if (parts_.output_parts > 1) expected[0].shape.back() /= parts_.output_parts;
  if (Fits(output, expected)) return;
  const std::string label =
      parts_.layers.empty() ? Str("stage ", number()) : parts_.layers.back().label;
  throw ConfigError(
      Str(label, " gives ", ToString(SpecsOf(output)), ", the plan has ", ToString(expected)));
}

}  // namespace strata
