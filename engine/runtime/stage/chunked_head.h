// ChunkedHead: runs the last layer of a job and its loss a few hundred rows at a time, so that no
// logits exist as a whole. engine/layers/head_chunks.h says for which layers and micro-batches.
//
// A chunk is what the whole would be for some of the rows: the layer's own forward, the loss's own
// value, and their backward, with the same code. So everything that a Linear and a CrossEntropyLoss
// can do (labels that are ignored, class weights, smoothing, probabilities, ties, frozen weights,
// half precision, a GPU) they do here too. It is not used where something reads the logits: for
// predictions, metrics of the script, and a step that is examined.
//
// The backward of a chunk runs in the forward, as soon as its loss is known. The loss is a scalar
// whose gradient is known before (RunSpec::loss_scale), so nothing has to wait for it. The other
// way, computing the logits again in the backward, takes a fourth product beside the three of
// forward, input gradient and weight gradient. In return the weights' gradients are added when the
// forward runs, not the backward, and not at the action W. The bits are the same for all plans
// nevertheless: gradients of each layer are summed in the order of micro-batches in either case;
// each use of a tied weight has its own sum; and the weights do not change within a step.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>

#include "engine/layers/layer.h"

namespace strata {

class ChunkedHead {
 public:
  /// Null if this last layer and this loss never run in chunks. `model`: the number of ranks of the
  /// model axis.
  static std::unique_ptr<ChunkedHead> Make(const LayerSpec& head, const LayerSpec& loss, int model);

  /// True if this micro-batch runs in chunks. `x`: the input of the head.
  bool Takes(const Tensors& x, const Tensors& target) const;

  struct Asked {
    double loss_scale = 1;     ///< the gradient of the loss
    bool counts_hits = false;  ///< else `hits` is left empty
  };
  struct Result {
    LossValue loss;
    Hits hits;
  };
  /// The loss of the micro-batch, summed over the chunks in ascending order. In a pass with
  /// weight gradients, those of `head` are complete on return, and a backward from `loss.sum` only
  /// passes the gradient of x on: `loss_scale` is in it already. Throws as the layer and the loss
  /// do. REQUIRES: Takes(x, target).
  Result Compute(Layer& head, const at::Tensor& x, const at::Tensor& target, const Pass& pass,
                 const Asked& asked) const;

 private:
  ChunkedHead(const LayerSpec& head, const LayerSpec& loss);

  const int64_t inputs_, classes_;
  const LayerSpec loss_;
  const std::unique_ptr<Loss> of_rows_;  ///< the loss of logits (rows, classes)
};

}  // namespace strata
