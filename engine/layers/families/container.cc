// The containers Sequential and Residual.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "engine/layers/composite.h"
#include "engine/layers/families.h"

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

constexpr LayerEntry kLayers[] = {{"Sequential", New<Sequential>}, {"Residual", New<Residual>}};

}  // namespace

LayerTable ContainerLayers() { return kLayers; }

}  // namespace strata
