// RunStraightBackward(): runs the backward of a graph that is a chain, without autograd's engine.
//
// The engine serves any graph on any devices. For every node it counts dependencies, queues a task
// and sets the thread's state, which takes 2 us. Most stages are chains of layers that each pass on
// one gradient, and a short stage spends more time in the engine than in its layers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

namespace strata {

/// Runs the nodes from `root` on and frees what they saved, like the engine without keep_graph and
/// create_graph: the same functions on the same tensors, hence the same bits. Leaves accumulate
/// their gradients in grad().
///
/// Returns false, having done nothing, if the graph is not a chain on the CPU: a node passes
/// gradients to two inner nodes, a leaf gets several gradients, or a hook is registered. Throws
/// what nodes throw.
bool RunStraightBackward(const torch::autograd::Edge& root, const at::Tensor& gradient);

}  // namespace strata
