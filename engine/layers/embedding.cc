// The layers Embedding, whole or shared among the ranks of the model axis, and EmbeddingBag.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_index_put_impl.h>
#include <ATen/ops/_unique2.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_bag.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/embedding_renorm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "engine/layers/axis/crossing.h"
#include "engine/layers/axis/index_share.h"
#include "engine/layers/families.h"
#include "engine/layers/init.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/losses.h"
#include "engine/layers/unary.h"
#include "engine/layers/weight_node.h"

namespace strata {
namespace {

/// How often each row of the table occurs in `indices`, but at least 1: (rows, 1) in the table's
/// type. It counts in float32, since half types are not exact for large counts.
at::Tensor CountsOf(const at::Tensor& indices, const at::Tensor& table) {
  const at::TensorOptions exact = table.options().dtype(at::kFloat);
  const at::Tensor ones = at::ones({indices.numel(), 1}, exact);
  const at::Tensor counts = at::zeros({table.size(0), 1}, exact).index_add(0, indices, ones);
  return counts.clamp_min(1).to(table.scalar_type());
}

class EmbeddingNode : public WeightNode {
 public:
  EmbeddingNode(int64_t padding_idx, bool scale_grad_by_freq)
      : padding_idx_(padding_idx), scale_grad_by_freq_(scale_grad_by_freq) {}

 private:
  at::Tensor InputGradient(const at::Tensor&, const at::Tensor&, const at::Tensor&) override {
    return {};  // indices have no gradient
  }

  std::function<void()> WeightGradient(const at::Tensor& dy, const at::Tensor& indices,
                                       const at::Tensor&) override {
    return [=, padding = padding_idx_, by_freq = scale_grad_by_freq_, dweight = weight_grad()] {
      // The rows of an index that occurs several times are summed in the gradient's type.
      const at::Tensor exact = dy.to(dweight.scalar_type());
      if (!indices.is_cpu()) {
        dweight.add_(InOneOrder(dweight, exact, indices, padding, by_freq));
      } else if (dweight.size(0) <= indices.numel()) {
        dweight.add_(
            at::embedding_dense_backward(exact, indices, dweight.size(0), padding, by_freq));
      } else {
        AddUsedRows(dweight, exact, indices, padding, by_freq);
      }
    };
  }

  /// The gradient on an accelerator. LibTorch 2.11's embedding backward sums the rows of a token
  /// that occurs some hundred times in no fixed order. Its index_put_ sorts the indices first, so
  /// that the order is fixed. `unsafe` keeps it from checking the largest index, for which the host
  /// would wait.
  static at::Tensor InOneOrder(const at::Tensor& dweight, const at::Tensor& dy,
                               const at::Tensor& indices, int64_t padding_idx, bool by_freq) {
    const at::Tensor rows = indices.reshape(-1);
    at::Tensor counted = dy.reshape({rows.numel(), dweight.size(1)});
    if (by_freq) counted = counted.div(CountsOf(rows, dweight).index_select(0, rows));
    if (padding_idx >= 0) counted = counted.masked_fill(rows.eq(padding_idx).unsqueeze(-1), 0);
    const c10::List<std::optional<at::Tensor>> places({rows});
    at::Tensor sum = at::zeros_like(dweight);
    at::_index_put_impl_(sum, places, counted, /*accumulate=*/true, /*unsafe=*/true);
    return sum;
  }

  /// Adds the gradient to the rows of those tokens only that occur. The result has the same bits as
  /// adding a gradient of the whole table.
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

/// Normally distributed initial values, with zeros for the row of padding_idx.
at::Tensor InitialVectors(const Value& args) {
  at::Tensor weight =
      NormalValues({args["num_embeddings"].as_int(), args["embedding_dim"].as_int()});
  const Value& padding = args["padding_idx"];
  if (!padding.is_null()) weight.select(0, padding.as_int()).zero_();
  return weight;
}

/// Scales the vectors of these indices down to a norm of at most `max_norm`; does nothing if that
/// is null. Autograd does not see the change; this is safe, since no backward of an earlier
/// micro-batch reads the vectors.
void Shorten(const Parameter& weight, const at::Tensor& indices, const Value& max_norm,
             double norm_type) {
  if (max_norm.is_null()) return;
  const at::NoGradGuard no_grad;
  const bool is_copy = weight.original.defined();
  at::Tensor vectors = (is_copy ? weight.original : weight.value).variable_data();
  at::embedding_renorm_(vectors, indices.contiguous(), max_norm.as_double(), norm_type);
  if (!is_copy) return;
  const at::Tensor rows = indices.reshape(-1);
  at::Tensor copy = weight.value.variable_data();
  copy.index_copy_(0, rows, vectors.index_select(0, rows).to(copy.scalar_type()));
}

class Embedding : public UnaryLayer {
 public:
  explicit Embedding(const Value& args)
      : padding_idx_(args["padding_idx"].is_null() ? -1 : args["padding_idx"].as_int()),
        rows_(args["num_embeddings"].as_int()),
        max_norm_(args["max_norm"]),
        norm_type_(args["norm_type"].as_double()),
        scale_grad_by_freq_(args["scale_grad_by_freq"].as_bool()) {
    AddParameter("weight", InitialVectors(args));
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }
  void CheckInput(const Tensors& inputs) const override {
    RequireIndices(inputs.at(0), rows_, "token", "rows");
  }

 protected:
  at::Tensor Apply(const at::Tensor& indices, const Pass& pass) override {
    return LookUp(indices, padding_idx_, pass);
  }

  /// Looks up the vectors of `indices`, which count from this rank's first row.
  at::Tensor LookUp(const at::Tensor& indices, int64_t padding_idx, const Pass& pass) {
    const Parameter& weight = parameters_[0];
    Shorten(weight, indices, max_norm_, norm_type_);
    const auto look_up = [&] {
      return at::embedding(weight.value, indices, padding_idx, scale_grad_by_freq_);
    };
    return Recorded<EmbeddingNode>(look_up, indices, weight, nullptr, pass, padding_idx,
                                   scale_grad_by_freq_);
  }
  int64_t padding_idx() const { return padding_idx_; }

 private:
  const int64_t padding_idx_;  // -1 = none
  const int64_t rows_;         // number of rows of all ranks together
  const Value max_norm_;
  const double norm_type_;
  const bool scale_grad_by_freq_;
};

/// split="column": each rank has a part of every vector.
class ColumnEmbedding : public Embedding {
 public:
  ColumnEmbedding(const LayerSpec& spec, std::shared_ptr<AxisComm> axis)
      : Embedding(spec.args),
        ends_{std::move(axis), Crossing::kNone,
              spec.output_shard ? Crossing::kNone : Crossing::kGather} {}

 protected:
  at::Tensor Apply(const at::Tensor& indices, const Pass& pass) override {
    return ends_.Leave(LookUp(indices, padding_idx(), pass));
  }

 private:
  const Ends ends_;
};

/// split="row": each rank has the vectors of some indices and gives zeros for all others. The sum
/// over the ranks is the result.
class RowEmbedding : public Embedding {
 public:
  RowEmbedding(const LayerSpec& spec, std::shared_ptr<AxisComm> axis)
      : Embedding(spec.args),
        rows_(ShareOfIndices(*axis, spec.args["num_embeddings"].as_int())),
        ends_{std::move(axis), Crossing::kNone, Crossing::kReduce} {}

 protected:
  at::Tensor Apply(const at::Tensor& indices, const Pass& pass) override {
    const at::Tensor elsewhere = rows_.Elsewhere(indices);
    const bool has_padding = padding_idx() >= rows_.begin && padding_idx() < rows_.end;
    const at::Tensor vectors =
        LookUp(rows_.Own(indices, elsewhere), has_padding ? padding_idx() - rows_.begin : -1, pass);
    return ends_.Leave(vectors.masked_fill(elsewhere.unsqueeze(-1), 0));
  }

 private:
  const IndexShare rows_;
  const Ends ends_;
};

std::unique_ptr<Layer> MakeEmbedding(const LayerSpec& spec, const BuildContext& context) {
  const std::string split = context.axis ? SplitOf(spec) : "";
  if (split == "row") return std::make_unique<RowEmbedding>(spec, context.axis);
  if (split == "column") return std::make_unique<ColumnEmbedding>(spec, context.axis);
  return std::make_unique<Embedding>(spec.args);
}

/// Reduces the vectors of each bag of indices to their sum, mean or maximum. The bags are the rows
/// of the first input. A second input holds a factor for each index.
class EmbeddingBag : public Layer {
 public:
  explicit EmbeddingBag(const Value& args)
      : max_norm_(args["max_norm"]),
        norm_type_(args["norm_type"].as_double()),
        scale_grad_by_freq_(args["scale_grad_by_freq"].as_bool()) {
    const std::string& mode = args["mode"].as_string();
    mode_ = mode == "sum" ? 0 : mode == "mean" ? 1 : 2;
    if (!args["padding_idx"].is_null()) padding_idx_ = args["padding_idx"].as_int();
    AddParameter("weight", InitialVectors(args));
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

  Tensors Forward(const Tensors& inputs, const Pass&) override {
    const at::Tensor indices = inputs[0].reshape(-1);
    const at::Tensor bags = at::arange(0, indices.numel(), inputs[0].size(1), indices.options());
    std::optional<at::Tensor> factors;
    if (inputs.size() > 1) factors = inputs[1].reshape(-1);
    Shorten(parameters_[0], indices, max_norm_, norm_type_);
    return {std::get<0>(at::embedding_bag(Table(indices), indices, bags,
                                          /*scale_grad_by_freq=*/false, mode_, /*sparse=*/false,
                                          factors, /*include_last_offset=*/false, padding_idx_))};
  }

 private:
  /// The table of vectors. With scale_grad_by_freq, a hook divides the gradient of each vector by
  /// the number of times that its index occurs, since LibTorch 2.11's own option uses the counts of
  /// other indices on the CPU.
  at::Tensor Table(const at::Tensor& indices) const {
    const at::Tensor table = at::alias(parameters_[0].value);
    if (!scale_grad_by_freq_ || !table.requires_grad()) return table;
    const at::Tensor counts = CountsOf(indices, table.detach());
    table.register_hook([counts](const at::Tensor& gradient) { return gradient.div(counts); });
    return table;
  }

  const Value max_norm_;
  const double norm_type_;
  const bool scale_grad_by_freq_;
  int64_t mode_ = 0;  // sum, mean, max
  std::optional<int64_t> padding_idx_;
};

constexpr LayerEntry kLayers[] = {{"Embedding", MakeEmbedding},
                                  {"EmbeddingBag", New<EmbeddingBag>}};

}  // namespace

LayerTable EmbeddingLayers() { return kLayers; }

}  // namespace strata
