// First walks the graph to verify that it is a chain (IsStraight), then walks it again and runs
// each node, passing its gradient on to the next. The cost is linear in the number of nodes.
#include "engine/runtime/stage/straight_backward.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/anomaly_mode.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace strata {
namespace {

using torch::autograd::Edge;
using torch::autograd::Node;
using torch::autograd::variable_list;

/// True for a leaf, or any other node that passes nothing on.
bool IsEnd(const Node& node) { return node.next_edges().empty(); }

bool IsHooked(Node& node) {
  return !node.pre_hooks().empty() || !node.post_hooks().empty() ||
         !node.tensor_pre_hooks().empty() || !node.retains_grad_hooks().empty() ||
         node.tensor_post_acc_grad_hooks() != nullptr;
}

bool IsPlain(Node& node) {
  for (uint32_t i = 0; i < node.num_inputs(); ++i) {
    if (!node.input_metadata(i).device().is_cpu()) return false;
  }
  return !IsHooked(node);
}

bool IsStraight(const Edge& root) {
  std::vector<Node*> ends;
  for (Node* node = root.function.get(); node;) {
    if (!IsPlain(*node)) return false;
    Node* next = nullptr;
    for (const Edge& edge : node->next_edges()) {
      if (!edge.is_valid()) continue;
      Node* to = edge.function.get();
      if (!IsEnd(*to)) {
        if (next) return false;
        next = to;
      } else if (!IsPlain(*to) || std::ranges::find(ends, to) != ends.end()) {
        return false;
      } else {
        ends.push_back(to);
      }
    }
    node = next;
  }
  return true;
}

/// Runs the node on a gradient of its output number edge.input_nr. Returns one gradient per next
/// edge.
variable_list Run(const Edge& edge, at::Tensor gradient) {
  Node& node = *edge.function;
  variable_list inputs(node.num_inputs());
  inputs[edge.input_nr] = std::move(gradient);
  node.will_release_variables();
  variable_list outputs = node(std::move(inputs));
  node.release_variables();
  torch::autograd::validate_outputs(node.next_edges(), outputs, [&](const std::string& message) {
    return node.name() + ": " + message;
  });
  return outputs;
}

}  // namespace

bool RunStraightBackward(const Edge& root, const at::Tensor& gradient) {
  if (torch::autograd::AnomalyMode::is_enabled() || !IsStraight(root)) return false;
  const at::AutoGradMode without_graph(false);
  variable_list first = {gradient};
  torch::autograd::validate_outputs({root}, first, [](const std::string& message) {
    return "the gradient of the output: " + message;
  });
  Edge edge = root;
  at::Tensor passed = std::move(first[0]);
  while (edge.is_valid()) {
    variable_list gradients = Run(edge, std::move(passed));
    Edge next;
    for (size_t i = 0; i < gradients.size(); ++i) {
      const Edge& to = edge.function->next_edge(i);
      if (!to.is_valid()) continue;
      if (IsEnd(*to.function)) {
        Run(to, std::move(gradients[i]));
      } else {
        next = to;
        passed = std::move(gradients[i]);
      }
    }
    edge = std::move(next);
  }
  return true;
}

}  // namespace strata
