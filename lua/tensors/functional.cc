#include "lua/tensors/functional.h"

namespace strata::lua {
namespace {

/// Everything else of torch.nn.functional is an operator with its own name and order (relu, linear,
/// conv2d, layer_norm, max_pool2d, mse_loss, scaled_dot_product_attention, ...).
const std::vector<Functional>& Table() {
  static const std::vector<Functional> table = {
      {"cross_entropy",
       "cross_entropy_loss",
       {"self", "target", "weight", "reduction", "ignore_index", "label_smoothing"}},
      {"nll_loss", "nll_loss_nd", {"self", "target", "weight", "reduction", "ignore_index"}},
      {"embedding",
       "embedding",
       {"indices", "weight", "padding_idx", "scale_grad_by_freq", "sparse"}},
      {"batch_norm",
       "batch_norm",
       {"input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps",
        "cudnn_enabled"}},
      {"logsigmoid", "log_sigmoid", {"self"}},
  };
  return table;
}

}  // namespace

const Functional* FindFunctional(std::string_view name) {
  for (const Functional& functional : Table()) {
    if (functional.name == name) return &functional;
  }
  return nullptr;
}

std::vector<std::string> FunctionalNames() {
  std::vector<std::string> names;
  for (const Functional& functional : Table()) names.emplace_back(functional.name);
  return names;
}

}  // namespace strata::lua
