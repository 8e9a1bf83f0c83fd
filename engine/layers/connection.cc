// Connections between distant layers: `skip` keeps a copy of the chain's value, `join` combines a
// kept value with the chain's.
#include <ATen/ops/add.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/cat.h>

#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/families.h"

namespace strata {
namespace {

/// Returns its inputs twice: for the chain, and for the join that keeps them. Each copy is a node
/// of its own in the graph. So a backward pass adds exactly two gradients here, and their sum does
/// not depend on their order. Therefore the cuts between stages do not change the bits.
class Skip : public Layer {
 public:
  explicit Skip(const Value&) {}
  Tensors Forward(const Tensors& inputs, const Pass&) override {
    Tensors outputs;
    for (int copy = 0; copy < 2; ++copy) {
      for (const at::Tensor& input : inputs) outputs.push_back(at::alias(input));
    }
    return outputs;
  }
};

/// Combines tensors in pairs. The first half of the inputs comes along the chain, the second half
/// was kept by a skip.
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

/// Hands on the tokens; behind them, for the stage to keep, the places of packed rows if there are
/// any.
class DocumentsLayer : public Layer {
 public:
  explicit DocumentsLayer(const Value&) {}
  Tensors Forward(const Tensors& inputs, const Pass&) override { return inputs; }
  /// Refuses the numbers of documents and other second inputs that are no places.
  void CheckInput(const Tensors& inputs) const override {
    if (inputs.size() < 2) return;
    const at::Tensor places = inputs[1].contiguous();
    const int64_t* place = places.const_data_ptr<int64_t>();
    for (int64_t i = 0; i < places.numel(); ++i) {
      const int64_t token = i % places.size(1), next = token == 0 ? 0 : place[i - 1] + 1;
      if (place[i] == 0 || place[i] == next) continue;
      throw ConfigError(Str("expects as second input the places of the tokens in their documents, ",
                            "0, 1, 2, ... and 0 where the next one begins; token ", token,
                            " of row ", i / places.size(1), " has ", place[i], ", expected ",
                            next == 0 ? "" : "0 or ", next));
    }
  }
};

constexpr LayerEntry kLayers[] = {
    {"skip", New<Skip>}, {"join", New<Join>}, {"documents", New<DocumentsLayer>}};

}  // namespace

LayerTable ConnectionLayers() { return kLayers; }

}  // namespace strata
