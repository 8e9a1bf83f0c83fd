#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/low_rank.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/split_mix.h"
#include "engine/layers/composite.h"
#include "engine/layers/dropout.h"
#include "engine/layers/init.h"
#include "engine/layers/linear.h"
#include "engine/layers/random/random.h"

namespace strata {
namespace {

/// The seed of the initial values of A. The seed of the surrounding scope is that of the job's
/// layer.
uint64_t SeedOf(const LayerSpec& spec, const std::string& weight) {
  return SplitMix(ScopeSeed(), spec.low_rank.path + weight);
}

at::Tensor FirstValuesOfA(const LayerSpec& spec, const Parameter& weight) {
  const RandomScope scope(SeedOf(spec, weight.name));
  return KaimingUniform({spec.low_rank.rank, weight.value.size(1)});
}

class LowRankLayer : public CompositeLayer {
 public:
  LowRankLayer(const LayerSpec& spec, std::unique_ptr<Layer> inside)
      : inside_(Adopt("", std::move(inside))), spec_(spec.low_rank) {
    const size_t own = parameters_.size();
    for (size_t i = 0; i < own; ++i) {
      if (!spec_.Has(parameters_[i].name)) continue;
      const Parameter weight = parameters_[i];
      parts_.push_back({i, parameters_.size()});
      AddParameter(LowRankName(weight.name, 'A'), FirstValuesOfA(spec, weight));
      AddParameter(LowRankName(weight.name, 'B'), Zeros({weight.value.size(0), spec_.rank}));
    }
    for (size_t i = own; i < parameters_.size(); ++i) parameters_[i].only_products = true;
    OnBound();
  }

  Tensors Forward(const Tensors& inputs, const Pass& pass) override {
    return inside_->Forward(inputs, pass);
  }
  void CheckInput(const Tensors& inputs) const override { inside_->CheckInput(inputs); }
  void set_may_overwrite_input(bool may) override { inside_->set_may_overwrite_input(may); }
  OutputMemory output_memory() const override { return inside_->output_memory(); }

  void OnBound() override {
    const double scale = spec_.alpha / static_cast<double>(spec_.rank);
    for (const auto& [weight, a] : parts_) {
      parameters_[weight].low_rank = std::make_shared<const LowRank>(
          LowRank{parameters_[a], parameters_[a + 1], scale, spec_.dropout});
    }
    CompositeLayer::OnBound();
  }

 private:
  struct Part {
    size_t weight;  ///< its index among the parameters
    size_t a;       ///< that of A, which B follows
  };

  Layer* const inside_;
  const LowRankSpec spec_;
  std::vector<Part> parts_;
};

}  // namespace

std::shared_ptr<const LowRank> RowsOf(const std::shared_ptr<const LowRank>& low_rank, int64_t begin,
                                      int64_t size) {
  if (!low_rank) return nullptr;
  LowRank rows = *low_rank;
  rows.b.value = rows.b.value.narrow(0, begin, size);
  if (rows.b.grad.defined()) rows.b.grad = rows.b.grad.narrow(0, begin, size);
  return std::make_shared<const LowRank>(std::move(rows));
}

at::Tensor AddLowRank(const LowRank& low_rank, const at::Tensor& x, at::Tensor y,
                      const Pass& pass) {
  const at::Tensor dropped = ApplyDropout(x, low_rank.dropout, pass.training);
  // The factor is applied to the few features between A and B.
  const at::Tensor inner = ApplyLinear(dropped, low_rank.a, nullptr, pass).mul(low_rank.scale);
  return y.add_(ApplyLinear(inner, low_rank.b, nullptr, pass));
}

std::unique_ptr<Layer> WithLowRank(const LayerSpec& spec, std::unique_ptr<Layer> layer) {
  if (spec.low_rank.weights.empty()) return layer;
  return std::make_unique<LowRankLayer>(spec, std::move(layer));
}

}  // namespace strata
