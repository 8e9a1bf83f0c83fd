#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/residual.h"

#include "engine/layers/dropout.h"
#include "engine/layers/random/random.h"

namespace strata {
namespace {

thread_local bool norms_apart = false;

}  // namespace

void LinkNorms(std::span<Layer* const> chain) {
  for (size_t i = 0; i < chain.size(); ++i) {
    auto* const sum = dynamic_cast<EndsWithSum*>(chain[i]);
    if (sum) sum->set_next_norm(i + 1 < chain.size() ? FirstNormOf(*chain[i + 1]) : nullptr);
  }
}

NormAfterSum* FirstNormOf(Layer& layer) {
  if (auto* const norm = dynamic_cast<NormAfterSum*>(&layer)) return norm;
  auto* const holds = dynamic_cast<BeginsWithNorm*>(&layer);
  return holds ? holds->first_norm() : nullptr;
}

bool MayRunTogether(Layer& before, Layer& layer) {
  return dynamic_cast<EndsWithSum*>(&before) && FirstNormOf(layer);
}

at::Tensor ResidualSum(const at::Tensor& x, const at::Tensor& f, double p, NormAfterSum* norm,
                       const Pass& pass) {
  const bool drops = pass.training && p > 0;
  if (p >= 1 || !IsForDropout(f)) return x.add(ApplyDropout(f, p, pass.training));
  const Drops numbers = {drops ? p : 0, drops ? DrawSeed() : 0};
  if (!AreForSum(x, f)) return x.add(drops ? DropoutByKernel(f, numbers) : f);
  const SumCall call = {x, f, numbers};
  if (norm && !norms_apart) {
    if (const auto sum = norm->SumAndKeep(call, pass)) return *sum;
  }
  return SumByKernel(call);
}

NormsApart::NormsApart(bool apart) : before_(norms_apart) { norms_apart = apart; }
NormsApart::~NormsApart() { norms_apart = before_; }

}  // namespace strata
