// The containers Sequential and Residual, and the stacks of Transformer layers.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/grad_mode.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/layers/composite.h"
#include "engine/layers/families.h"
#include "engine/layers/random/random.h"

namespace strata {
namespace {

/// Runs its layers one after the other.
class Sequential : public CompositeLayer {
 public:
  Sequential(const LayerSpec& spec, const BuildContext& context) {
    for (size_t i = 0; i < spec.children.size(); ++i) {
      const LayerSpec& child = spec.children[i];
      const std::string name = child.name.empty() ? std::to_string(i) : child.name;
      chain_.push_back(Adopt(name, BuildLayer(child, context.script, context.axis)));
    }
    AllowOverwriting(chain_);
  }

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    Tensors tensors = inputs;
    for (Layer* layer : chain_) tensors = layer->Forward(tensors, pass);
    return tensors;
  }

  void set_may_overwrite_input(bool may) override {
    Layer::set_may_overwrite_input(may);
    AllowOverwriting(chain_, may);
  }

  OutputMemory output_memory() const override {
    for (auto layer = chain_.rbegin(); layer != chain_.rend(); ++layer) {
      const OutputMemory memory = (*layer)->output_memory();
      if (memory != OutputMemory::kInput) return memory;
    }
    return OutputMemory::kInput;
  }

 private:
  std::vector<Layer*> chain_;
};

/// x + body(x). The body must never overwrite x, so set_may_overwrite_input() does not reach it.
class Residual : public Sequential {
 public:
  using Sequential::Sequential;

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    Tensors outputs = Sequential::Forward(inputs, pass);
    STRATA_CHECK(outputs.size() == inputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i] = inputs[i].add(outputs[i]);
    return outputs;
  }

  void set_may_overwrite_input(bool may) override { Layer::set_may_overwrite_input(may); }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }
};

/// A layer num_layers times, then perhaps a norm. All layers start with the same values, as the
/// copies in PyTorch do, and take the same memory and masks.
class Stack : public CompositeLayer {
 public:
  Stack(const LayerSpec& spec, const BuildContext& context) {
    const auto build = [&](const LayerSpec& child) {
      return BuildLayer(child, context.script, context.axis);
    };
    for (int64_t i = 0; i < spec.Int("num_layers"); ++i) {
      std::optional<RandomScope> of_copies;  // as in PyTorch, copies draw nothing
      if (i > 0) of_copies.emplace(0);
      std::unique_ptr<Layer> layer = build(spec.children[0]);
      for (size_t p = 0; i > 0 && p < layer->parameters().size(); ++p) {
        const at::NoGradGuard no_grad;
        layer->parameters()[p].value.copy_(stack_[0]->parameters()[p].value);
      }
      stack_.push_back(Adopt("layers." + std::to_string(i), std::move(layer)));
    }
    if (spec.children.size() > 1) norm_ = Adopt("norm", build(spec.children[1]));
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    Tensors tensors = inputs;
    for (Layer* layer : stack_) tensors[0] = layer->Forward(tensors, pass)[0];
    return norm_ ? norm_->Forward({tensors[0]}, pass) : Tensors{tensors[0]};
  }

 private:
  std::vector<Layer*> stack_;
  Layer* norm_ = nullptr;
};

constexpr LayerEntry kLayers[] = {{"Sequential", New<Sequential>},
                                  {"Residual", New<Residual>},
                                  {"TransformerEncoder", New<Stack>},
                                  {"TransformerDecoder", New<Stack>}};

}  // namespace

LayerTable ContainerLayers() { return kLayers; }

}  // namespace strata
