// The layers of two tensors: Bilinear, CosineSimilarity and PairwiseDistance.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/ops/bilinear.h>
#include <ATen/ops/cosine_similarity.h>
#include <ATen/ops/pairwise_distance.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <optional>

#include "engine/layers/families.h"
#include "engine/layers/init.h"

namespace strata {
namespace {

class PairLayer : public Layer {
 public:
  Tensors Forward(const Tensors& inputs, const Pass&) final {
    TORCH_CHECK(inputs.size() == 2, "expects two tensors, got ", inputs.size());
    return {Apply(inputs[0], inputs[1])};
  }
  OutputMemory output_memory() const override { return OutputMemory::kFresh; }

 protected:
  virtual at::Tensor Apply(const at::Tensor& a, const at::Tensor& b) = 0;
};

class Bilinear : public PairLayer {
 public:
  explicit Bilinear(const Value& args) {
    const int64_t in = args["in1_features"].as_int(), out = args["out_features"].as_int();
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    AddParameter("weight", UniformValues({out, in, args["in2_features"].as_int()}, bound));
    if (args["bias"].as_bool()) AddParameter("bias", UniformValues({out}, bound));
  }

 protected:
  at::Tensor Apply(const at::Tensor& a, const at::Tensor& b) override {
    const Parameter* bias = OptionalParameter(1);
    return at::bilinear(a, b, parameters_[0].value,
                        bias ? std::make_optional(bias->value) : std::nullopt);
  }
};

/// A layer of two tensors that is one call of ATen.
template <at::Tensor (*call)(const at::Tensor& a, const at::Tensor& b, const Value& args)>
class PairCall : public PairLayer {
 public:
  explicit PairCall(const Value& args) : args_(args) {}

 protected:
  at::Tensor Apply(const at::Tensor& a, const at::Tensor& b) override { return call(a, b, args_); }

 private:
  const Value args_;
};

at::Tensor Similarity(const at::Tensor& a, const at::Tensor& b, const Value& args) {
  return at::cosine_similarity(a, b, args["dim"].as_int(), args["eps"].as_double());
}

at::Tensor Distance(const at::Tensor& a, const at::Tensor& b, const Value& args) {
  return at::pairwise_distance(a, b, args["p"].as_double(), args["eps"].as_double(),
                               args["keepdim"].as_bool());
}

constexpr LayerEntry kLayers[] = {{"Bilinear", New<Bilinear>},
                                  {"CosineSimilarity", New<PairCall<Similarity>>},
                                  {"PairwiseDistance", New<PairCall<Distance>>}};

}  // namespace

LayerTable PairLayers() { return kLayers; }

}  // namespace strata
