// TransformerEncoderLayer and TransformerDecoderLayer: blocks around which lie a residual
// connection and a norm.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/layers/attention.h"
#include "engine/layers/dropout.h"
#include "engine/layers/families.h"
#include "engine/layers/linear.h"
#include "engine/layers/norm.h"

namespace strata {
namespace {

/// What both layers share. PyTorch's order of construction, and so of draws and parameters:
/// attentions, linear1, linear2, norms.
class TransformerLayer : public CompositeLayer {
 public:
  TransformerLayer(const Value& args, std::vector<std::string> attentions)
      : dropout_(args["dropout"].as_double()),
        norm_first_(args["norm_first"].as_bool()),
        gelu_(args["activation"].as_string() == "gelu"),
        causal_(args["causal"].as_bool()) {
    const int64_t width = args["d_model"].as_int();
    const int64_t hidden = args["dim_feedforward"].as_int();
    const bool bias = args["bias"].as_bool();
    for (const std::string& name : attentions) {
      attentions_.push_back(Adopt(name, NewAttention(args)));
    }
    linear1_ = Adopt("linear1", NewLinear(width, hidden, bias));
    linear2_ = Adopt("linear2", NewLinear(hidden, width, bias));
    for (size_t i = 1; i <= attentions.size() + 1; ++i) {
      norms_.push_back(
          Adopt("norm" + std::to_string(i),
                NewLayerNorm({width}, args["layer_norm_eps"].as_double(), true, bias)));
    }
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  using Block = std::function<at::Tensor(const at::Tensor&)>;

  /// x + block(norm(x)) with norm_first, else norm(x + block(x)). `number` counts the blocks.
  at::Tensor Around(size_t number, const at::Tensor& x, const Pass& pass, const Block& block) {
    const auto norm = [&](const at::Tensor& t) { return norms_[number]->Forward({t}, pass)[0]; };
    const auto drop = [&](const at::Tensor& t) { return ApplyDropout(t, dropout_, pass.training); };
    return norm_first_ ? x.add(drop(block(norm(x)))) : norm(x.add(drop(block(x))));
  }

  at::Tensor SelfAttention(const at::Tensor& x, const Pass& pass) {
    return Around(0, x, pass, [&](const at::Tensor& t) {
      return attentions_[0]->Attend(t, t, t, causal_, pass);
    });
  }

  at::Tensor FeedForward(const at::Tensor& x, const Pass& pass) {
    return Around(norms_.size() - 1, x, pass, [&](const at::Tensor& t) {
      const at::Tensor inner = linear1_->Forward({t}, pass)[0];
      const at::Tensor active = gelu_ ? at::gelu(inner) : at::relu(inner);
      return linear2_->Forward({ApplyDropout(active, dropout_, pass.training)}, pass)[0];
    });
  }

  bool causal() const { return causal_; }
  MultiheadAttention& attention(size_t number) { return *attentions_[number]; }

 private:
  static std::unique_ptr<MultiheadAttention> NewAttention(const Value& args) {
    AttentionOptions options;
    options.embed_dim = options.kdim = options.vdim = args["d_model"].as_int();
    options.num_heads = args["nhead"].as_int();
    options.dropout = args["dropout"].as_double();
    options.bias = args["bias"].as_bool();
    options.batch_first = args["batch_first"].as_bool();
    return std::make_unique<MultiheadAttention>(options);
  }

  const double dropout_;
  const bool norm_first_;
  const bool gelu_;
  const bool causal_;
  std::vector<MultiheadAttention*> attentions_;
  Layer* linear1_;
  Layer* linear2_;
  std::vector<Layer*> norms_;
};

class TransformerEncoderLayer : public TransformerLayer {
 public:
  explicit TransformerEncoderLayer(const Value& args) : TransformerLayer(args, {"self_attn"}) {}

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    STRATA_CHECK(inputs.size() == 1) << inputs.size() << " tensors";
    return {FeedForward(SelfAttention(inputs[0], pass), pass)};
  }
};

/// Takes a target and a memory. Given one tensor, that is the memory too; then `causal` holds for
/// the attention to the memory as well, or later elements would show through it.
class TransformerDecoderLayer : public TransformerLayer {
 public:
  explicit TransformerDecoderLayer(const Value& args)
      : TransformerLayer(args, {"self_attn", "multihead_attn"}) {}

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    STRATA_CHECK(inputs.size() == 1 || inputs.size() == 2) << inputs.size() << " tensors";
    const at::Tensor& memory = inputs.back();
    const bool memory_is_causal = causal() && inputs.size() == 1;
    at::Tensor x = SelfAttention(inputs[0], pass);
    x = Around(1, x, pass, [&](const at::Tensor& t) {
      return attention(1).Attend(t, memory, memory, memory_is_causal, pass);
    });
    return {FeedForward(x, pass)};
  }
};

}  // namespace

std::unique_ptr<Layer> MakeTransformer(const LayerSpec& spec, LayerScript*) {
  if (spec.type == "TransformerEncoderLayer") {
    return std::make_unique<TransformerEncoderLayer>(spec.args);
  }
  STRATA_CHECK(spec.type == "TransformerDecoderLayer") << "no transformer layer " << spec.type;
  return std::make_unique<TransformerDecoderLayer>(spec.args);
}

}  // namespace strata
