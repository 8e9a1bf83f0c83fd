// The containers Sequential and Residual, their parts (parts.h), and the stacks of Transformer
// layers.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/layers/composite.h"
#include "engine/layers/dropout.h"
#include "engine/layers/families.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/packed_weight.h"
#include "engine/layers/parts.h"
#include "engine/layers/random/random.h"
#include "engine/layers/residual.h"

namespace strata {
namespace {

/// Runs its layers one after the other. A part runs only its own layers. Initial values are drawn
/// in one sequence through all layers. So a part also builds, and drops, the layers before its own,
/// unless something was drawn already: then the parts before it were built in the same RandomScope.
class Sequential : public CompositeLayer, public BeginsWithNorm, public EndsWithSum {
 public:
  Sequential(const LayerSpec& spec, const BuildContext& context) {
    const ChildRange own = RangeOf(spec);
    for (int i = HasDrawn() ? own.begin : 0; i < own.end; ++i) {
      const LayerSpec& child = spec.children[static_cast<size_t>(i)];
      std::unique_ptr<Layer> layer = BuildLayer(child, context.script, context.axis);
      if (i >= own.begin) chain_.push_back(Adopt(LayerPath(child, i), std::move(layer)));
    }
    AllowOverwriting(chain_);
    LinkNorms(chain_);
  }

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    return Run(chain_, inputs, pass);
  }
  NormAfterSum* first_norm() override { return chain_.empty() ? nullptr : FirstNormOf(*chain_[0]); }
  void set_next_norm(NormAfterSum* norm) override {
    auto* const sum = chain_.empty() ? nullptr : dynamic_cast<EndsWithSum*>(chain_.back());
    if (sum) sum->set_next_norm(norm);
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

 protected:
  static Tensors Run(std::span<Layer* const> chain, Tensors tensors, const Pass& pass) {
    for (Layer* layer : chain) tensors = layer->Forward(tensors, pass);
    return tensors;
  }
  std::span<Layer* const> chain() const { return chain_; }

 private:
  std::vector<Layer*> chain_;
};

/// x + body(x). Between two parts, x and the tensor that the body has made of it so far cross the
/// cut: every part but the first takes both (x, then the body's one tensor), and every part but the
/// last returns both.
class Residual : public Sequential {
 public:
  Residual(const LayerSpec& spec, const BuildContext& context)
      : Sequential(spec, context),
        is_first_(RangeOf(spec).begin == 0),
        is_last_(RangeOf(spec).end == std::ssize(spec.children)) {}

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    const auto end = is_first_ ? inputs.end() : inputs.end() - 1;
    Tensors x(inputs.begin(), end);
    // A dropout at the end of the body is part of the sum.
    std::span<Layer* const> body = chain();
    std::optional<double> dropout;
    if (is_last_ && !body.empty()) dropout = DropoutOf(*body.back());
    if (dropout) body = body.first(body.size() - 1);
    Tensors outputs = Run(body, is_first_ ? x : Tensors(end, inputs.end()), pass);
    if (!is_last_) {
      x.insert(x.end(), outputs.begin(), outputs.end());
      return x;
    }
    STRATA_CHECK(outputs.size() == x.size());
    NormAfterSum* const norm = x.size() == 1 ? next_norm_ : nullptr;
    for (size_t i = 0; i < outputs.size(); ++i) {
      outputs[i] = ResidualSum(x[i], outputs[i], dropout.value_or(0), norm, pass);
    }
    return outputs;
  }
  NormAfterSum* first_norm() override { return is_first_ ? Sequential::first_norm() : nullptr; }
  void set_next_norm(NormAfterSum* norm) override { next_norm_ = is_last_ ? norm : nullptr; }

  /// The first part must not overwrite x, which is needed for the sum. A later part's body reads a
  /// tensor of its own, which it may overwrite.
  void set_may_overwrite_input(bool may) override {
    Sequential::set_may_overwrite_input(may && !is_first_);
  }
  /// Between parts this is the memory of the body's tensor, which the next part's body may
  /// overwrite.
  OutputMemory output_memory() const override {
    const OutputMemory of_body = Sequential::output_memory();
    if (is_last_) return OutputMemory::kFresh;
    return is_first_ && of_body == OutputMemory::kInput ? OutputMemory::kKept : of_body;
  }

 private:
  const bool is_first_, is_last_;
  NormAfterSum* next_norm_ = nullptr;
};

/// num_layers copies of a layer, and a norm after them if there is one. All copies start with the
/// same values, as in PyTorch. Each takes the previous one's output as its first input; the other
/// inputs (memory and masks) are the same for all.
class Stack : public CompositeLayer {
 public:
  Stack(const LayerSpec& spec, const BuildContext& context) {
    const auto build = [&](const LayerSpec& child) {
      return BuildLayer(child, context.script, context.axis);
    };
    for (int64_t i = 0; i < spec.Int("num_layers"); ++i) {
      std::optional<RandomScope> of_copies;  // the copies draw nothing from the outer scope
      if (i > 0) of_copies.emplace(0);
      std::unique_ptr<Layer> layer = build(spec.children[0]);
      for (size_t p = 0; i > 0 && p < layer->parameters().size(); ++p) {
        CopyValue(stack_[0]->parameters()[p], layer->parameters()[p]);
      }
      stack_.push_back(Adopt("layers." + std::to_string(i), std::move(layer)));
    }
    if (spec.children.size() > 1) norm_ = Adopt("norm", build(spec.children[1]));
    std::vector<Layer*> chain = stack_;
    if (norm_) chain.push_back(norm_);
    LinkNorms(chain);
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

constexpr LayerEntry kLayers[] = {
    {"Sequential", New<Sequential>},    {"Sequential.part", New<Sequential>},
    {"Residual", New<Residual>},        {"Residual.part", New<Residual>},
    {"TransformerEncoder", New<Stack>}, {"TransformerDecoder", New<Stack>}};

}  // namespace

LayerTable ContainerLayers() { return kLayers; }

}  // namespace strata
