#include <ATen/ops/add.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/cat.h>

#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/layers/families.h"

namespace strata {
namespace {

/// Gives its input for the chain, and again for the one who keeps it. Each is a node of its own
/// in the graph, so that gradients are added two by two, in an order that no cut can change: the
/// sum of two does not depend on which comes first.
class Skip : public Layer {
 public:
  Tensors Forward(const Tensors& inputs, const Pass&) override {
    Tensors outputs;
    for (int copy = 0; copy < 2; ++copy) {
      for (const at::Tensor& input : inputs) outputs.push_back(at::alias(input));
    }
    return outputs;
  }
};

/// Is given what comes along the chain, then as many tensors that were kept.
class Join : public Layer {
 public:
  explicit Join(const Value& args) : how_(args["how"].as_string()), dim_(args["dim"].as_int()) {}

  Tensors Forward(const Tensors& inputs, const Pass&) override {
    if (how_ == "pass") return inputs;
    STRATA_CHECK(inputs.size() % 2 == 0) << inputs.size() << " tensors to join in pairs";
    const size_t count = inputs.size() / 2;
    Tensors outputs;
    for (size_t i = 0; i < count; ++i) {
      const at::Tensor &chain = inputs[i], &kept = inputs[count + i];
      outputs.push_back(how_ == "add" ? at::add(chain, kept) : at::cat({chain, kept}, dim_));
    }
    return outputs;
  }

  OutputMemory output_memory() const override {
    return how_ == "pass" ? OutputMemory::kKept : OutputMemory::kFresh;
  }

 private:
  const std::string how_;
  const int64_t dim_;
};

}  // namespace

std::unique_ptr<Layer> MakeConnection(const LayerSpec& spec, const BuildContext&) {
  if (spec.type == "skip") return std::make_unique<Skip>();
  STRATA_CHECK(spec.type == "join") << "no connection " << spec.type;
  return std::make_unique<Join>(spec.args);
}

}  // namespace strata
