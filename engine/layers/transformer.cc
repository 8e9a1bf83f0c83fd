// TransformerEncoderLayer and TransformerDecoderLayer: blocks (attention, feed-forward) that have a
// residual connection and a norm around them. Attention and feed-forward block can also be layers
// of their own (parts.h). And Transformer, which is a stack of each kind of layer.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/layers/attention.h"
#include "engine/layers/axis/crossing.h"
#include "engine/layers/documents.h"
#include "engine/layers/dropout.h"
#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/inputs.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/linear.h"
#include "engine/layers/norm.h"
#include "engine/layers/packed_weight.h"
#include "engine/layers/parts.h"
#include "engine/layers/random/random.h"
#include "engine/layers/residual.h"
#include "engine/layers/split.h"

namespace strata {
namespace {

/// The base of both layers and of their parts. The layers inside are constructed in PyTorch's order
/// (attentions, linear1, linear2, norms), which is also the order of initial draws and of
/// parameters. A part also constructs, and drops, the layers of the other parts, unless something
/// was drawn already: then the part before it was built in the same RandomScope.
class TransformerLayer : public CompositeLayer, public BeginsWithNorm, public EndsWithSum {
 public:
  /// `attentions` are the names of the attention layers. The inputs are as many sequences as there
  /// are attentions, followed by masks (inputs.h).
  TransformerLayer(const LayerSpec& spec, const BuildContext& context,
                   const std::vector<std::string>& attentions)
      : ends_(LayerEnds(spec, context.axis)),
        block_(BlockEnds(spec, context.axis)),
        dropout_(spec.args["dropout"].as_double()),
        norm_first_(spec.args["norm_first"].as_bool()),
        gelu_(spec.args["activation"].as_string() == "gelu"),
        causal_(spec.args["causal"].as_bool()),
        batch_first_(spec.args["batch_first"].as_bool()),
        heads_(spec.args["nhead"].as_int()) {
    const Value& args = spec.args;
    const std::vector<ParameterSpec> own = ParametersOf(spec);
    const bool draws_others = PartNumber(spec.type) > 0 && !HasDrawn();
    const auto take = [&](const std::string& name, const auto& make) {
      const bool is_own = std::ranges::any_of(own, [&](const ParameterSpec& parameter) {
        return parameter.name.starts_with(name + ".");
      });
      auto layer = is_own || draws_others ? make() : nullptr;
      return is_own ? Adopt(name, std::move(layer)) : nullptr;
    };
    const int64_t width = args["d_model"].as_int();
    const int64_t hidden = args["dim_feedforward"].as_int();
    const bool bias = args["bias"].as_bool();
    for (const std::string& name : attentions) {
      attentions_.push_back(take(name, [&] { return NewAttention(args); }));
    }
    Ends row = block_;
    row.enter = Crossing::kNone;  // linear1's output is this rank's features already
    linear1_ = take("linear1", [&] { return NewLinear(width, hidden, bias); });
    linear2_ = take("linear2", [&] { return NewLinear(hidden, width, bias, std::move(row)); });
    for (size_t i = 1; i <= attentions.size() + 1; ++i) {
      norms_.push_back(take("norm" + std::to_string(i), [&] {
        return NewLayerNorm({width}, args["layer_norm_eps"].as_double(), true, bias);
      }));
    }
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

  NormAfterSum* first_norm() override {
    return norm_first_ ? NormAt(attentions_[0] ? 0 : norms_.size() - 1) : nullptr;
  }
  void set_next_norm(NormAfterSum* norm) override { next_norm_ = norm; }

  /// Inputs and output are whole; with split="sequence" they may be this rank's parts
  /// (LayerEnds()).
  Tensors Forward(const Tensors& inputs, const Pass& pass) final {
    Tensors entered = inputs;
    for (size_t i = 0; i < std::min(inputs.size(), attentions_.size()); ++i) {
      if (inputs[i].defined()) entered[i] = ends_.Enter(inputs[i]);
    }
    Tensors outputs = Run(entered, pass);
    outputs[0] = ends_.Leave(outputs[0]);
    return outputs;
  }

 protected:
  virtual Tensors Run(const Tensors& inputs, const Pass& pass) = 0;

  using Block = std::function<at::Tensor(const at::Tensor&)>;

  /// Computes x + dropout(block(norm(x))) with norm_first, else norm(x + dropout(block(x))).
  /// `number` is the number of the block, from 0 on.
  at::Tensor Around(size_t number, const at::Tensor& x, const Pass& pass, const Block& block) {
    const auto norm = [&](const at::Tensor& t) { return norms_[number]->Forward({t}, pass)[0]; };
    const auto sum = [&](const at::Tensor& f, NormAfterSum* next) {
      return ends_.axis ? x.add(Dropped(f, pass)) : ResidualSum(x, f, dropout_, next, pass);
    };
    if (!norm_first_) return norm(sum(block(x), NormAt(number)));
    const bool is_last = number + 1 == norms_.size() || !norms_[number + 1];
    return sum(block(norm(x)), is_last ? next_norm_ : NormAt(number + 1));
  }

  at::Tensor SelfAttention(const at::Tensor& x, const Pass& pass, const AttentionMasks& masks) {
    return Around(0, x, pass, [&](const at::Tensor& t) {
      return attentions_[0]->Attend(t, t, t, causal_, pass, masks);
    });
  }

  at::Tensor FeedForward(const at::Tensor& x, const Pass& pass) {
    return Around(norms_.size() - 1, x, pass, [&](const at::Tensor& t) {
      const at::Tensor inner = linear1_->Forward({block_.Enter(t)}, pass)[0];
      const Part part = {block_.axis.get(), -1};
      const at::Tensor active = gelu_ ? ApplyDropout(at::gelu(inner), dropout_, pass.training, part)
                                      : DroppedRelu(inner, dropout_, pass.training, part);
      return linear2_->Forward({active}, pass)[0];
    });
  }

  /// Draws and drops the random numbers that an attention of `x` to a sequence of `length` tokens
  /// draws. A later part calls it so that its own numbers are those of the whole layer.
  void SkipAttention(const at::Tensor& x, int64_t length, const Pass& pass) {
    if (!pass.training || dropout_ == 0) return;
    if (SplitsDraws(x, block_.axis.get())) {
      SplitSeed(x.device());
    } else {
      // On devices other than the CPU the scores are float32.
      const at::TensorOptions wide = x.options().dtype(at::kFloat);
      const auto skip = [&](int64_t batch, int64_t queries, int64_t keys) {
        ApplyDropout(at::empty({batch, heads_, queries, keys}, x.is_cpu() ? x.options() : wide),
                     dropout_, /*training=*/true);
      };
      const Documents* const documents = x.is_cpu() ? CurrentDocuments() : nullptr;
      if (!documents) {
        skip(x.size(batch_first_ ? 0 : 1), Length(x), length);
      } else {
        for (const std::vector<int64_t>& row : documents->lengths()) {
          for (const int64_t tokens : row) skip(1, tokens, tokens);
        }
      }
    }
    Dropped(at::empty_like(x), pass);
  }

  int64_t Length(const at::Tensor& sequence) const { return sequence.size(batch_first_ ? 1 : 0); }
  bool causal() const { return causal_; }
  MultiheadAttention& attention(size_t number) { return *attentions_[number]; }

 private:
  /// Null if the norm belongs to another part, or works on a part of the sequence.
  NormAfterSum* NormAt(size_t number) const {
    Layer* const norm = ends_.axis ? nullptr : norms_[number];
    return norm ? FirstNormOf(*norm) : nullptr;
  }

  at::Tensor Dropped(const at::Tensor& t, const Pass& pass) const {
    return ApplyDropout(t, dropout_, pass.training, {ends_.axis.get(), ends_.dim});
  }

  static Ends LayerEnds(const LayerSpec& spec, const std::shared_ptr<AxisComm>& axis) {
    const bool is_shared = axis && SplitOf(spec) == "sequence";
    return is_shared ? PartEnds(spec, axis, SequenceDim(spec)) : Ends();
  }

  /// The ends of the attentions and of the feed-forward block. Inside a block this rank has some of
  /// the heads or features.
  static Ends BlockEnds(const LayerSpec& spec, const std::shared_ptr<AxisComm>& axis) {
    const std::string split = axis ? SplitOf(spec) : "";
    if (split == "heads") return {axis, Crossing::kCopy, Crossing::kReduce};
    if (split == "sequence") {
      return {axis, Crossing::kGatherSummed, Crossing::kReduceScatter, SequenceDim(spec)};
    }
    return {};
  }

  std::unique_ptr<MultiheadAttention> NewAttention(const Value& args) const {
    AttentionOptions options;
    options.embed_dim = options.kdim = options.vdim = args["d_model"].as_int();
    options.num_heads = args["nhead"].as_int();
    options.dropout = args["dropout"].as_double();
    options.bias = args["bias"].as_bool();
    options.batch_first = args["batch_first"].as_bool();
    return std::make_unique<MultiheadAttention>(options, block_);
  }

  const Ends ends_;  // of the whole layer; no crossings unless split="sequence"
  const Ends block_;
  const double dropout_;
  const bool norm_first_;
  const bool gelu_;
  const bool causal_;
  const bool batch_first_;
  const int64_t heads_;
  // The layers that belong to another part are null.
  std::vector<MultiheadAttention*> attentions_;
  Layer* linear1_;
  Layer* linear2_;
  std::vector<Layer*> norms_;
  NormAfterSum* next_norm_ = nullptr;  // of the layer behind this one
};

class TransformerEncoderLayer : public TransformerLayer {
 public:
  TransformerEncoderLayer(const LayerSpec& spec, const BuildContext& context)
      : TransformerLayer(spec, context, {"self_attn"}) {}

 protected:
  at::Tensor Attention(const Tensors& inputs, const Pass& pass) {
    return SelfAttention(inputs[0], pass, {InputAt(inputs, 1), InputAt(inputs, 2)});
  }
  Tensors Run(const Tensors& inputs, const Pass& pass) override {
    return {FeedForward(Attention(inputs, pass), pass)};
  }
};

/// Its inputs are a target and a memory. A single input is both; then `causal` also masks the
/// attention to the memory, since later elements would be seen through it otherwise.
class TransformerDecoderLayer : public TransformerLayer {
 public:
  TransformerDecoderLayer(const LayerSpec& spec, const BuildContext& context)
      : TransformerLayer(spec, context, {"self_attn", "multihead_attn"}) {}

 protected:
  at::Tensor Attention(const Tensors& inputs, const Pass& pass) {
    const bool has_memory = InputAt(inputs, 1).defined();
    const at::Tensor& memory = inputs[has_memory ? 1 : 0];
    const AttentionMasks own = {InputAt(inputs, 2), InputAt(inputs, 4)};
    const AttentionMasks of_memory = {InputAt(inputs, 3), InputAt(inputs, 5)};
    const at::Tensor x = SelfAttention(inputs[0], pass, own);
    return Around(1, x, pass, [&](const at::Tensor& t) {
      return attention(1).Attend(t, memory, memory, causal() && !has_memory, pass, of_memory);
    });
  }
  Tensors Run(const Tensors& inputs, const Pass& pass) override {
    return {FeedForward(Attention(inputs, pass), pass)};
  }
};

// ---- The parts. If nothing has been drawn from the scope of this layer, the attentions run in
// another part. Then the feed-forward block first draws their numbers and drops them
// (SkipAttention()).

class EncoderAttention : public TransformerEncoderLayer {
 public:
  using TransformerEncoderLayer::TransformerEncoderLayer;

 protected:
  Tensors Run(const Tensors& inputs, const Pass& pass) override {
    return {Attention(inputs, pass)};
  }
};

class EncoderFeedForward : public TransformerEncoderLayer {
 public:
  using TransformerEncoderLayer::TransformerEncoderLayer;

 protected:
  Tensors Run(const Tensors& inputs, const Pass& pass) override {
    if (!HasDrawn()) SkipAttention(inputs[0], Length(inputs[0]), pass);
    return {FeedForward(inputs[0], pass)};
  }
};

/// With a memory there is a second output, whose size is the length of the memory: the feed-forward
/// block needs it to skip the draws of the attention to the memory.
class DecoderAttention : public TransformerDecoderLayer {
 public:
  using TransformerDecoderLayer::TransformerDecoderLayer;

 protected:
  Tensors Run(const Tensors& inputs, const Pass& pass) override {
    Tensors outputs = {Attention(inputs, pass)};
    if (inputs.size() == 1) return outputs;
    outputs.push_back(at::zeros({Length(inputs[1])}, inputs[1].options().dtype(at::kLong)));
    return outputs;
  }
};

class DecoderFeedForward : public TransformerDecoderLayer {
 public:
  using TransformerDecoderLayer::TransformerDecoderLayer;

 protected:
  Tensors Run(const Tensors& inputs, const Pass& pass) override {
    const int64_t length = Length(inputs[0]);
    if (!HasDrawn()) {
      SkipAttention(inputs[0], length, pass);
      SkipAttention(inputs[0], inputs.size() > 1 ? inputs[1].numel() : length, pass);
    }
    return {FeedForward(inputs[0], pass)};
  }
};

/// True for the names that LowRankName() gives.
bool IsLowRankPart(std::string_view name) {
  return name.ends_with("lora_A.weight") || name.ends_with("lora_B.weight");
}

/// An encoder, and a decoder that attends to the encoder's output.
class Transformer : public CompositeLayer {
 public:
  Transformer(const LayerSpec& spec, const BuildContext& context) {
    encoder_ = Adopt("encoder", BuildLayer(spec.children[0], context.script, context.axis));
    decoder_ = Adopt("decoder", BuildLayer(spec.children[1], context.script, context.axis));
    DrawMatrices(ParametersOf(spec), context.axis.get());
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

  /// The inputs are source and target, followed by masks (inputs.h); a mask that is left out is
  /// undefined.
  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    const at::Tensor memory = encoder_->Forward(EncoderInputs(inputs), pass)[0];
    return decoder_->Forward(DecoderInputs(inputs, memory), pass);
  }

 private:
  /// Draws all matrices again, after the layers have drawn theirs, as PyTorch's _reset_parameters()
  /// does. Low-rank parts keep the values that they begin with. `declared` are the specs of the
  /// whole parameters.
  void DrawMatrices(const std::vector<ParameterSpec>& declared, const AxisComm* axis) {
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < declared.size(); ++i) {
      if (declared[i].shape.size() < 2 || IsLowRankPart(declared[i].name)) continue;
      const Parameter& parameter = parameters()[i];
      at::Tensor drawn = XavierUniform(declared[i].shape);
      if (parameter.share) drawn = CopyShare(drawn, *parameter.share, axis->rank(), axis->size());
      if (parameter.packed) {
        parameter.packed->Pack(drawn);
      } else {
        parameter.value.copy_(drawn);
      }
    }
  }

  Layer* encoder_;
  Layer* decoder_;
};

constexpr LayerEntry kLayers[] = {{"TransformerEncoderLayer", New<TransformerEncoderLayer>},
                                  {"TransformerEncoderLayer.attention", New<EncoderAttention>},
                                  {"TransformerEncoderLayer.feed_forward", New<EncoderFeedForward>},
                                  {"TransformerDecoderLayer", New<TransformerDecoderLayer>},
                                  {"TransformerDecoderLayer.attention", New<DecoderAttention>},
                                  {"TransformerDecoderLayer.feed_forward", New<DecoderFeedForward>},
                                  {"Transformer", New<Transformer>}};

}  // namespace

LayerTable TransformerLayers() { return kLayers; }

}  // namespace strata
