// Measures the memory that a layer's passes allocate, by running them on zeros. After the forward,
// the outputs and then the inputs are released. What stays allocated is kept by the autograd graph
// for the backward; the difference at each release shows whether the graph also keeps the outputs
// and the inputs. The scratch memory is the peak of each pass beyond that. The cost is one forward
// and one backward.
#include "lua/engine/layer_memory.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/size_class.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/tensors/threads.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

/// Counts the bytes that this thread allocates while the object lives. Outside of it, threads that
/// plan use account 0.
class Counter {
 public:
  Counter() { SetMemoryAccount(kAccount); }
  ~Counter() { SetMemoryAccount(0); }
  Counter(const Counter&) = delete;
  Counter& operator=(const Counter&) = delete;

  /// The bytes allocated now, without those from before the counter was made.
  int64_t now() const { return MemoryOf(kAccount).current - before_; }
  /// The peak since the last call, in bytes.
  int64_t TakePeak() const {
    const int64_t peak = MemoryOf(kAccount).peak - before_;
    ResetPeakMemory(kAccount);
    return peak;
  }

 private:
  static constexpr int kAccount = kMemoryAccounts - 1;  // an account that no rank uses
  const int64_t before_ = MemoryOf(kAccount).current;
};

/// Limits LibTorch to one thread: a pool of threads would not survive a fork, and the ranks may be
/// forked from this process.
class OneThread {
 public:
  OneThread() { SetThreads(1); }
  ~OneThread() { SetThreads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  const int before_ = at::get_num_threads();
};

/// The type in which the layer computes: half precision if one of its inputs has it.
at::ScalarType ComputeType(const TensorSpecs& inputs) {
  for (const TensorSpec& spec : inputs) {
    const at::ScalarType type = ToScalarType(spec.dtype);
    if (at::isReducedFloatingType(type)) return type;
  }
  return at::kFloat;
}

/// Binds gradients as a stage does: in half precision the layer gets copies of its parameters.
void BindGradients(Layer& layer, at::ScalarType compute) {
  for (Parameter& parameter : layer.parameters()) {
    if (!parameter.frozen) parameter.grad = at::zeros_like(parameter.value.detach());
    if (parameter.keeps_type || parameter.value.scalar_type() != at::kFloat) continue;
    parameter.value = parameter.value.detach().to(compute).requires_grad_(!parameter.frozen);
  }
  layer.OnBound();
}

/// Allocates inputs that look like the outputs of an earlier layer. They are computed from `leaf`,
/// and only this layer's graph keeps them.
Tensors Inputs(const TensorSpecs& specs, const at::Tensor& leaf) {
  Tensors inputs;
  for (const TensorSpec& spec : specs) {
    const at::ScalarType type = ToScalarType(spec.dtype);
    inputs.push_back(IsFloating(spec.dtype)
                         ? leaf.to(type).expand(spec.shape).clone(at::MemoryFormat::Contiguous)
                         : at::zeros(spec.shape, type));
  }
  return inputs;
}

using Storages = std::set<const c10::StorageImpl*>;

Storages StoragesOf(const Tensors& tensors) {
  Storages storages;
  for (const at::Tensor& tensor : tensors) {
    storages.insert(tensor.storage().unsafeGetStorageImpl());
  }
  return storages;
}

int64_t BytesOf(const Storages& storages) {
  int64_t bytes = 0;
  for (const c10::StorageImpl* storage : storages) {
    bytes += AllocatedBytes(static_cast<int64_t>(storage->nbytes()));
  }
  return bytes;
}

/// The edges at which the backward begins, and their gradients.
struct Roots {
  torch::autograd::edge_list edges;
  torch::autograd::variable_list gradients;
};

/// The roots for these outputs. The gradients are expanded views, so they take no memory yet.
Roots RootsOf(const Tensors& outputs) {
  Roots roots;
  for (const at::Tensor& output : outputs) {
    if (!output.requires_grad()) continue;
    roots.edges.push_back(torch::autograd::impl::gradient_edge(output));
    roots.gradients.push_back(at::ones({}, output.options()).expand(output.sizes()));
  }
  return roots;
}

/// Runs a backward over a graph on this thread, in the order of autograd's engine, and keeps the
/// graph. Autograd's engine itself would start a thread for each GPU and thereby CUDA; a process
/// that has started CUDA cannot fork ranks for GPUs.
class TrialBackward {
 public:
  void Run(Roots roots) {
    for (const torch::autograd::Edge& root : roots.edges) Find(root.function.get());
    for (size_t i = 0; i < roots.edges.size(); ++i) {
      Give(roots.edges[i], std::move(roots.gradients[i]));
    }
    const at::AutoGradMode without_graph(false);
    while (!ready_.empty()) {
      torch::autograd::Node* const node = ready_.top();
      ready_.pop();
      Evaluate(*node);
    }
  }

 private:
  using Node = torch::autograd::Node;
  using Gradients = torch::autograd::variable_list;

  /// Counts for each node below the root, and for the root, how many gradients it must wait for. It
  /// does not recurse, since a loop in a script makes a deep graph.
  void Find(Node* root) {
    std::vector<Node*> found = {root};
    while (!found.empty()) {
      Node* const node = found.back();
      found.pop_back();
      if (waits_for_[node]++ > 0) continue;
      for (const torch::autograd::Edge& edge : node->next_edges()) {
        if (edge.is_valid()) found.push_back(edge.function.get());
      }
    }
  }

  void Evaluate(Node& node) {
    Gradients outputs = node(std::exchange(gradients_[&node], {}));
    // Gradients of tensors that were broadcast in the forward are summed here.
    torch::autograd::validate_outputs(node.next_edges(), outputs,
                                      [](const std::string& words) { return words; });
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (node.next_edge(i).is_valid()) Give(node.next_edge(i), std::move(outputs[i]));
    }
  }

  void Give(const torch::autograd::Edge& edge, at::Tensor gradient) {
    Node* const node = edge.function.get();
    Gradients& gradients = gradients_[node];
    gradients.resize(node->num_inputs());
    at::Tensor& sum = gradients[edge.input_nr];
    if (gradient.defined()) sum = sum.defined() ? at::add(sum, gradient) : std::move(gradient);
    if (--waits_for_[node] == 0) ready_.push(node);
  }

  /// Orders nodes so that the last one of the forward comes first.
  struct IsEarlier {
    bool operator()(const Node* a, const Node* b) const {
      return a->sequence_nr() < b->sequence_nr();
    }
  };
  std::map<Node*, int> waits_for_;
  std::map<Node*, Gradients> gradients_;
  std::priority_queue<Node*, std::vector<Node*>, IsEarlier> ready_;
};

/// The peak of the backward, in bytes, without the inputs' gradients. Saved tensors count to the
/// end, since Lua may hold them as well.
int64_t BackwardScratch(Roots roots, int64_t input_bytes, const Counter& counter) {
  if (roots.edges.empty()) return 0;
  for (at::Tensor& gradient : roots.gradients) gradient = gradient.contiguous();
  const int64_t before = counter.now();
  counter.TakePeak();
  TrialBackward().Run(std::move(roots));
  return std::max<int64_t>(0, counter.TakePeak() - before - input_bytes);
}

/// The most garbage that may exist between two collections: kMostBetweenCollections times the share
/// of a call's allocations that become garbage.
int64_t LiesAround(int64_t garbage, int64_t handed_out) {
  if (garbage <= 0) return 0;
  const double share = static_cast<double>(garbage) / static_cast<double>(handed_out);
  return std::max(garbage,
                  static_cast<int64_t>(share * static_cast<double>(kMostBetweenCollections)));
}

}  // namespace

LayerMemory MemoryOfLayer(Layer& layer, const TensorSpecs& inputs,
                          const std::function<void()>& collect) {
  const at::AutoGradMode with_graph(true);
  const OneThread one_thread;
  BindGradients(layer, ComputeType(inputs));
  const at::Tensor leaf = at::zeros({}).requires_grad_(true);
  leaf.mutable_grad() = at::zeros({});
  const Counter counter;
  Tensors x = Inputs(inputs, leaf);
  const Storages entering = StoragesOf(x);
  const int64_t input_bytes = BytesOf(entering);
  collect();
  counter.TakePeak();

  Tensors y = layer.Forward(x, Pass{.training = true});
  const int64_t peak = counter.TakePeak(), with_garbage = counter.now();
  collect();
  const int64_t all = counter.now();
  Storages leaving = StoragesOf(y);
  std::erase_if(leaving, [&](const c10::StorageImpl* s) { return entering.contains(s); });
  const int64_t output_bytes = BytesOf(leaving);
  Roots roots = RootsOf(y);

  // The difference shows what is freed once only the graph holds the outputs, and then the inputs.
  y.clear();
  const int64_t without_outputs = counter.now();
  x.clear();
  const int64_t kept = counter.now();
  const int64_t kept_output = output_bytes - (all - without_outputs);
  const int64_t kept_input = input_bytes - (without_outputs - kept);
  LayerMemory memory;
  memory.passes_input = leaving.empty();
  memory.keeps_output = output_bytes > 0 && kept_output == output_bytes;
  memory.keeps_input = input_bytes > 0 && kept_input == input_bytes;
  memory.kept =
      kept - (memory.keeps_output ? output_bytes : 0) - (memory.keeps_input ? input_bytes : 0);
  const int64_t lies_around = LiesAround(with_garbage - all, with_garbage);
  memory.forward_scratch = std::max(peak - all, lies_around);
  memory.backward_scratch = BackwardScratch(std::move(roots), input_bytes, counter) + lies_around;
  return memory;
}

}  // namespace strata::lua
