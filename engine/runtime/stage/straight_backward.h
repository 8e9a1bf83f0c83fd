// RunStraightBackward: the backward of a graph that is one straight line, without autograd's
// engine.
//
// The engine serves graphs of any form on any devices: it counts dependencies, queues tasks and
// takes over the thread's state for every node, 2 us each. Most stages are a line of layers, of
// which each passes one gradient on; a short stage spends more on the engine than on its layers.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

namespace strata {

/// Runs the nodes from `root` on and frees what they saved, as the engine does that keeps no graph
/// and creates none: the same functions on the same tensors, hence the same bits. Leaves collect
/// their gradients in grad().
///
/// Returns false, having done nothing, where the graph is no line on the CPU: a node passes
/// gradients on to two others, or a leaf gets several, or somebody hooked in. Throws what nodes
/// throw.
bool RunStraightBackward(const torch::autograd::Edge& root, const at::Tensor& gradient);

}  // namespace strata
