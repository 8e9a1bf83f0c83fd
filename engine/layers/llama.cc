// The parts of Llama's blocks: RotaryEmbedding, GroupedQueryAttention and SwiGLU.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/attention.h"
#include "engine/layers/axis/crossing.h"
#include "engine/layers/composite.h"
#include "engine/layers/cuda/launch.h"
#include "engine/layers/cuda/llama_kernels.h"
#include "engine/layers/documents.h"
#include "engine/layers/families.h"
#include "engine/layers/kept_tokens.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/linear.h"
#include "engine/layers/unary.h"

namespace strata {
namespace {

/// Throws ConfigError unless x (N, ..., T, D) has the tokens of the packed rows.
void CheckRows(const Documents& documents, const at::Tensor& x) {
  if (x.size(0) == documents.rows() && x.size(-2) == documents.tokens()) return;
  throw ConfigError(Str("rotary positions of ", documents.rows(), " packed rows of ",
                        documents.tokens(), " tokens expect (N, ..., T, features), got ",
                        FormatShape(x.sizes())));
}

/// Rotary position embedding (Su et al., arXiv:2104.09864) of x (..., T, D): rotates the pair
/// (x[i], x[i + D/2]) at position t by the angle t theta^(-2i/D). The paper pairs neighbours;
/// Llama's published weights pair the two halves. Positions count from the start of the text
/// (TokenPosition()), in packed rows from that of the document (documents.h).
at::Tensor Rotate(const at::Tensor& x, double theta) {
  const Documents* const documents = CurrentDocuments();
  if (documents) {
    CheckRows(*documents, x);
  } else if (const auto y = RotateByKernel(x, theta, TokenPosition())) {
    return *y;
  }
  const int64_t half = x.size(-1) / 2;
  const auto integers = x.options().dtype(at::kLong);
  const at::Tensor frequency =
      at::pow(at::Scalar(theta), at::arange(half, integers).neg().div(half));
  const int64_t begin = TokenPosition();
  const at::Tensor places = at::arange(begin, begin + x.size(-2), integers);
  const at::Tensor angle = places.unsqueeze(1).mul(frequency);
  // Of packed rows, (T, D/2) becomes (N, 1, ..., T, D/2).
  const auto of_tokens = [&](const at::Tensor& of_places) {
    const at::Tensor table = of_places.to(x.scalar_type());
    if (!documents) return table;
    std::vector<int64_t> shape(static_cast<size_t>(x.dim()), 1);
    shape[0] = x.size(0);
    shape[shape.size() - 2] = x.size(-2);
    shape.back() = half;
    return table.index_select(0, documents->places().flatten()).view(shape);
  };
  const at::Tensor cosine = of_tokens(angle.cos()), sine = of_tokens(angle.sin());
  const at::Tensor a = x.narrow(-1, 0, half), b = x.narrow(-1, half, half);
  return at::cat({a.mul(cosine).sub(b.mul(sine)), b.mul(cosine).add(a.mul(sine))}, -1);
}

/// The base of layers made of linear layers without bias. The ranks of the model axis share the
/// features between these: each has some outputs of the first ones and the same inputs of the last.
class ProjectionLayer : public CompositeLayer {
 public:
  ProjectionLayer(const LayerSpec& spec, const BuildContext& context)
      : axis_(SplitOf(spec).empty() ? nullptr : context.axis), is_tied_(!spec.tied_key.empty()) {}

  Tensors Forward(const Tensors& inputs, const Pass& pass) final {
    STRATA_CHECK(inputs.size() == 1) << inputs.size() << " tensors for a layer of one";
    return {Apply(Cross(inputs[0], Crossing::kCopy, axis_, -1), pass)};
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  /// Adds a linear layer. `last` marks the one whose output leaves the block; there the products of
  /// the ranks are summed.
  Layer* Project(const std::string& name, int64_t in, int64_t out, bool last = false) {
    Ends ends;
    if (last && axis_) ends = {axis_, Crossing::kNone, Crossing::kReduce};
    return Adopt(name, NewLinear(in, out, /*bias=*/false, std::move(ends)));
  }
  virtual at::Tensor Apply(const at::Tensor& x, const Pass& pass) = 0;
  /// The outputs of several layers by one product, one behind the other in the last dim. Only where
  /// our kernels run, which take such a result apart without a copy. Not for a tied layer: whether
  /// its gradients lie side by side depends on the plan.
  std::optional<at::Tensor> Together(const at::Tensor& x, std::initializer_list<Layer*> layers,
                                     const Pass& pass) const {
    if (is_tied_ || !KernelsFor(x) || !KernelElementOf(x.scalar_type())) return std::nullopt;
    if (at::GradMode::is_enabled() && !pass.weight_gradients) return std::nullopt;
    const std::optional<Parameter> joined = JoinedWeights(std::vector<Layer*>(layers));
    if (!joined) return std::nullopt;
    return ApplyLinear(x, *joined, nullptr, pass);
  }

 private:
  const std::shared_ptr<AxisComm> axis_;  // null: every rank has the whole layer
  const bool is_tied_;
};

class GroupedQueryAttention : public ProjectionLayer {
 public:
  GroupedQueryAttention(const LayerSpec& spec, const BuildContext& context)
      : ProjectionLayer(spec, context),
        head_(spec.Int("dim") / spec.Int("num_heads")),
        queries_of_key_(spec.Int("num_heads") / spec.Int("num_kv_heads")),
        theta_(spec.args["rope_theta"]),
        causal_(spec.Bool("causal")) {
    const int64_t dim = spec.Int("dim"), keys = head_ * spec.Int("num_kv_heads");
    q_ = Project("q_proj", dim, dim);
    k_ = Project("k_proj", dim, keys);
    v_ = Project("v_proj", dim, keys);
    o_ = Project("o_proj", dim, dim, /*last=*/true);
  }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    at::Tensor projected[3];
    if (const auto all = Together(x, {q_, k_, v_}, pass)) {
      const auto width = [](Layer* layer) { return layer->parameters()[0].value.size(0); };
      const auto parts = all->split_with_sizes({width(q_), width(k_), width(v_)}, -1);
      std::ranges::copy(parts, projected);
    } else {
      for (int i = 0; Layer * layer : {q_, k_, v_}) projected[i++] = layer->Forward({x}, pass)[0];
    }
    const auto heads = [&](int i) {  // (N, H, T, D)
      return projected[i].unflatten(2, {-1, head_}).transpose(1, 2);
    };
    const auto turned = [&](const at::Tensor& t) {
      return theta_.is_null() ? t : Rotate(t, theta_.as_double());
    };
    const auto repeated = [&](const at::Tensor& t) {
      return queries_of_key_ == 1 ? t : t.repeat_interleave(queries_of_key_, 1);
    };
    const at::Tensor q = turned(heads(0));
    const int64_t before = TokenPosition(), queries = q.size(2);
    const auto [k, v] = WithKept(this, turned(heads(1)), heads(2));
    std::optional<at::Tensor> mask;
    if (causal_ && before > 0 && queries > 1) mask = CausalMask(queries, k.size(2), 0, q);
    const at::Tensor keys = repeated(k), values = repeated(v);
    const bool causal = causal_ && before == 0;
    const at::Tensor mixed =
        WithinDocuments(q, keys, values, mask, causal,
                        [](const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                           const std::optional<at::Tensor>& seen, bool is_causal) {
                          return at::scaled_dot_product_attention(query, key, value, seen,
                                                                  /*dropout_p=*/0, is_causal);
                        });
    return o_->Forward({mixed.transpose(1, 2).flatten(2)}, pass)[0];
  }

 private:
  const int64_t head_;
  const int64_t queries_of_key_;
  const Value theta_;  // null: no rotary positions
  const bool causal_;
  Layer *q_, *k_, *v_, *o_;
};

class SwiGlu : public ProjectionLayer {
 public:
  SwiGlu(const LayerSpec& spec, const BuildContext& context) : ProjectionLayer(spec, context) {
    const int64_t dim = spec.Int("dim"), hidden = spec.Int("hidden");
    gate_ = Project("gate_proj", dim, hidden);
    up_ = Project("up_proj", dim, hidden);
    down_ = Project("down_proj", hidden, dim, /*last=*/true);
  }

 protected:
  at::Tensor Apply(const at::Tensor& x, const Pass& pass) override {
    if (const auto both = Together(x, {gate_, up_}, pass)) {
      if (const auto y = SwigluOfHalvesByKernel(*both)) return down_->Forward({*y}, pass)[0];
    }
    const at::Tensor gate = gate_->Forward({x}, pass)[0], up = up_->Forward({x}, pass)[0];
    if (const auto y = SwigluByKernel(gate, up)) return down_->Forward({*y}, pass)[0];
    return down_->Forward({at::silu(gate).mul(up)}, pass)[0];
  }

 private:
  Layer *gate_, *up_, *down_;
};

constexpr LayerEntry kLayers[] = {
    {"RotaryEmbedding",
     [](const at::Tensor& x, const Value& args) { return Rotate(x, args["theta"].as_double()); }},
    {"GroupedQueryAttention", New<GroupedQueryAttention>},
    {"SwiGLU", New<SwiGlu>},
};

}  // namespace

LayerTable LlamaLayers() { return kLayers; }

}  // namespace strata
