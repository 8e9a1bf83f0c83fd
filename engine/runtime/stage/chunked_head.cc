#include "engine/runtime/stage/chunked_head.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/layers/head_chunks.h"
#include "engine/runtime/stage/straight_backward.h"

namespace strata {
namespace {

using torch::autograd::Node;
using torch::autograd::variable_list;

/// The node of a loss whose input's gradient is known already.
class KnownGradient : public Node {
 public:
  KnownGradient(const at::Tensor& x, at::Tensor dx)
      : Node(torch::autograd::collect_next_edges(x)), dx_(std::move(dx)) {}

  variable_list apply(variable_list&&) override { return {std::move(dx_)}; }
  void release_variables() override { dx_.reset(); }

 private:
  at::Tensor dx_;
};

void RunBackward(const at::Tensor& sum, double gradient) {
  const torch::autograd::Edge root = torch::autograd::impl::gradient_edge(sum);
  const at::Tensor given = at::full_like(sum, gradient);
  if (RunStraightBackward(root, given)) return;
  torch::autograd::Engine::get_default_engine().execute(
      {root}, {given}, /*keep_graph=*/false, /*create_graph=*/false, /*accumulate_grad=*/true);
}

void AddTo(at::Tensor& sum, const at::Tensor& value) {
  if (!value.defined()) return;
  sum = sum.defined() ? sum.add(value) : value;
}

LayerSpec WithLastDim(LayerSpec loss) {
  loss.args.Set("class_dim", -1);
  return loss;
}

}  // namespace

ChunkedHead::ChunkedHead(const LayerSpec& head, const LayerSpec& loss)
    : inputs_(head.Int("in_features")),
      classes_(head.Int("out_features")),
      loss_(loss),
      of_rows_(BuildLoss(WithLastDim(loss), nullptr)) {}

std::unique_ptr<ChunkedHead> ChunkedHead::Make(const LayerSpec& head, const LayerSpec& loss,
                                               int model) {
  if (!MayRunInChunks(head, loss, model)) return nullptr;
  return std::unique_ptr<ChunkedHead>(new ChunkedHead(head, loss));
}

bool ChunkedHead::Takes(const Tensors& x, const Tensors& target) const {
  if (x.size() != 1 || target.empty() || x[0].dim() == 0 || x[0].size(-1) != inputs_) return false;
  std::vector<int64_t> logits = x[0].sizes().vec();
  logits.back() = classes_;
  const bool are_labels = c10::isIntegralType(target[0].scalar_type(), /*includeBool=*/false);
  return RowsInChunks(logits, target[0].sizes(), are_labels, loss_, x[0].is_cpu()).has_value();
}

ChunkedHead::Result ChunkedHead::Compute(Layer& head, const at::Tensor& x, const at::Tensor& target,
                                         const Pass& pass, const Asked& asked) const {
  const bool learns = pass.weight_gradients && at::GradMode::is_enabled();
  const at::Tensor rows = x.detach().reshape({-1, inputs_});
  const at::Tensor targets = target.dim() < x.dim() ? target.reshape({-1})  // labels
                                                    : target.reshape({-1, classes_});
  at::Tensor dx;
  if (learns && x.requires_grad()) dx = at::empty(rows.sizes(), rows.options());
  Pass of_chunk = pass;
  if (learns) of_chunk.weight_gradients = std::make_shared<WeightGradients>();
  Result result;
  const int64_t most = RowsOfChunk(classes_, x.is_cpu());
  for (int64_t begin = 0; begin < rows.size(0); begin += most) {
    const int64_t count = std::min(most, rows.size(0) - begin);
    const at::Tensor part = rows.narrow(0, begin, count).detach();
    part.requires_grad_(dx.defined());
    const at::Tensor labels = targets.narrow(0, begin, count);
    LossValue loss;
    {
      const at::Tensor logits = head.Forward({part}, of_chunk)[0].to(at::kFloat);
      loss = of_rows_->Compute({logits}, {labels});
      if (asked.counts_hits) {
        const Hits hits = of_rows_->CountHits({logits.detach()}, {labels});
        result.hits.correct += hits.correct;
        result.hits.counted += hits.counted;
        AddTo(result.hits.on_device, hits.on_device);
      }
    }  // frees the logits before the backward
    if (learns && loss.sum.requires_grad()) RunBackward(loss.sum, asked.loss_scale);
    if (dx.defined()) dx.narrow(0, begin, count).copy_(part.grad());
    AddTo(result.loss.sum, loss.sum.detach());
    AddTo(result.loss.device_weight, loss.device_weight);
    result.loss.weight += loss.weight;
  }
  if (dx.defined()) {
    const std::shared_ptr<Node> node(new KnownGradient(x, dx.view(x.sizes())),
                                     torch::autograd::deleteNode);
    torch::autograd::set_history(result.loss.sum, node);
  }
  return result;
}

}  // namespace strata
