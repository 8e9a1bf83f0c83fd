#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/_unique2.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/embedding_renorm.h>

#include <tuple>

#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/unary.h"
#include "engine/layers/weight_node.h"

namespace strata {
namespace {

class EmbeddingNode : public WeightNode {
 public:
  EmbeddingNode(int64_t padding_idx, bool scale_grad_by_freq)
      : padding_idx_(padding_idx), scale_grad_by_freq_(scale_grad_by_freq) {}

 private:
  at::Tensor InputGradient(const at::Tensor&, const at::Tensor&, const at::Tensor&) override {
    return {};  // of indices
  }

  std::function<void()> WeightGradient(const at::Tensor& dy, const at::Tensor& indices,
                                       const at::Tensor&) override {
    return [=, padding = padding_idx_, by_freq = scale_grad_by_freq_, dweight = weight_grad()] {
      if (dweight.size(0) <= indices.numel()) {
        dweight.add_(at::embedding_dense_backward(dy, indices, dweight.size(0), padding, by_freq));
      } else {
        AddUsedRows(dweight, dy, indices, padding, by_freq);
      }
    };
  }

  /// The same bits without touching the rows of tokens that do not occur.
  static void AddUsedRows(const at::Tensor& dweight, const at::Tensor& dy,
                          const at::Tensor& indices, int64_t padding_idx, bool by_freq) {
    const auto [rows, places, _] = at::_unique2(indices, /*sorted=*/true, /*return_inverse=*/true);
    const at::Tensor counted =
        padding_idx < 0 ? dy : dy.masked_fill(indices.eq(padding_idx).unsqueeze(-1), 0);
    dweight.index_add_(
        0, rows,
        at::embedding_dense_backward(counted, places, rows.size(0), /*padding_idx=*/-1, by_freq));
  }

  const int64_t padding_idx_;
  const bool scale_grad_by_freq_;
};

class Embedding : public UnaryLayer {
 public:
  explicit Embedding(const Value& args)
      : padding_idx_(args["padding_idx"].is_null() ? -1 : args["padding_idx"].as_int()),
        max_norm_(args["max_norm"]),
        norm_type_(args["norm_type"].as_double()),
        scale_grad_by_freq_(args["scale_grad_by_freq"].as_bool()) {
    at::Tensor weight =
        NormalValues({args["num_embeddings"].as_int(), args["embedding_dim"].as_int()});
    if (padding_idx_ >= 0) weight.select(0, padding_idx_).zero_();
    AddParameter("weight", weight);
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  at::Tensor Apply(const at::Tensor& indices, const Pass& pass) override {
    const Parameter& weight = parameters_[0];
    if (!max_norm_.is_null()) {
      at::Tensor value = weight.value.detach();
      at::embedding_renorm_(value, indices.contiguous(), max_norm_.as_double(), norm_type_);
    }
    const auto look_up = [&] {
      return at::embedding(weight.value, indices, padding_idx_, scale_grad_by_freq_);
    };
    return Recorded<EmbeddingNode>(look_up, indices, weight, nullptr, pass, padding_idx_,
                                   scale_grad_by_freq_);
  }

 private:
  const int64_t padding_idx_;  // -1: none
  const Value max_norm_;
  const double norm_type_;
  const bool scale_grad_by_freq_;
};

}  // namespace

std::unique_ptr<Layer> MakeEmbedding(const LayerSpec& spec, LayerScript*) {
  return std::make_unique<Embedding>(spec.args);
}

}  // namespace strata
