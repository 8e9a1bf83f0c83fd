// Rules that see a parameter as a whole: Adafactor and Muon, as in torch.optim. Adafactor estimates
// the squared gradient by the means of its rows and columns (Shazeer and Stern, arXiv:1804.04235).
// Muon replaces the averaged gradient by the nearest matrix with orthonormal rows or columns, by a
// few Newton-Schulz iterations.
#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/check.h"
#include "engine/runtime/update/update_rules.h"

namespace strata {
namespace {

using T = at::Tensor;

double Rms(const T& tensor) {
  return at::linalg_vector_norm(tensor, 2).item<double>() /
         std::sqrt(static_cast<double>(tensor.numel()));
}

/// The mean of squares over a dim, without a temporary of the gradient's size.
T MeanOfSquares(const T& gradient, int64_t dim) {
  return at::linalg_vector_norm(gradient, 2, at::IntArrayRef{dim}, /*keepdim=*/true)
      .square_()
      .div_(gradient.size(dim));
}

double EpsilonOf(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return std::numeric_limits<double>::epsilon();
    case at::kBFloat16:
      return 0x1p-7;
    case at::kHalf:
      return 0x1p-10;
    default:
      return std::numeric_limits<float>::epsilon();
  }
}

/// Approximates the orthogonal factor of the gradient: singular values near 1 (Newton-Schulz, in
/// bfloat16).
T Orthogonal(const T& gradient, const std::vector<double>& coefficients, int64_t steps,
             double eps) {
  const bool is_tall = gradient.size(0) > gradient.size(1);
  T x = gradient.to(at::kBFloat16);
  if (is_tall) x = x.t();
  // A new tensor: `x` may be the gradient itself.
  x = x.div(at::linalg_vector_norm(x, 2).clamp_min(eps));
  for (int64_t i = 0; i < steps; ++i) {
    const T gram = x.mm(x.t());
    const T update = at::addmm(gram, gram, gram, coefficients[1], coefficients[2]);
    x = at::addmm(x, update, x, coefficients[0]);
  }
  return is_tall ? x.t() : x;
}

/// Calls function(parameter, gradient) for the parameters of the buffer. The gradient is divided,
/// and negated to maximize.
template <class Function>
void ForParameters(const Updated& u, const UpdateStep& now, bool maximize,
                   const Function& function) {
  STRATA_CHECK(!u.parameters.empty()) << "whole parameters are needed";
  if (now.divisor != 1) u.gradients.div_(now.divisor);
  for (const PlacedParameter& parameter : u.parameters) {
    const T& gradient = parameter.gradient;
    function(parameter, maximize ? gradient.neg() : gradient);
  }
}

T& FactorOf(const Updated& u, const PlacedParameter& parameter, const char* name) {
  const auto found = std::ranges::find_if(*u.factors, [&](const Factor& factor) {
    return factor.path == parameter.path && factor.name == name;
  });
  STRATA_CHECK(found != u.factors->end()) << parameter.path << " " << name;
  return found->values;
}

}  // namespace

std::vector<Factor> AdafactorFactors(const PlacedParameter& parameter) {
  const T& value = parameter.value;
  const auto factor = [&](const char* name, int64_t dim) {
    std::vector<int64_t> shape = value.sizes().vec();
    if (value.dim() > 1) shape[value.dim() + dim] = 1;
    return Factor{parameter.path, name, at::zeros(shape, value.options().requires_grad(false))};
  };
  if (value.dim() < 2) return {factor("variance", 0)};
  return {factor("row_var", -1), factor("col_var", -2)};
}

Rule Adafactor(const Value& o) {
  const Value::List& epsilons = o["eps"].as_list();
  const double least = epsilons[0].is_null() ? 0 : epsilons[0].as_double();
  const double scale = epsilons[1].as_double(), largest = o["d"].as_double();
  const double decay = o["weight_decay"].as_double(), exponent = o["beta2_decay"].as_double();
  const bool by_type = epsilons[0].is_null(), maximize = o["maximize"].as_bool();
  return [=](const Updated& u, const UpdateStep& now) {
    const auto step = static_cast<double>(now.step);
    const double fresh = std::pow(step, exponent);
    ForParameters(u, now, maximize, [&](const PlacedParameter& parameter, const T& gradient) {
      const T& p = parameter.value;
      const double eps = by_type ? EpsilonOf(p.scalar_type()) : least;
      const double lr = std::max(scale, Rms(p)) * std::min(now.lr, 1 / std::sqrt(step));
      if (decay != 0) p.mul_(1 - now.lr * decay);
      T estimate;
      if (gradient.dim() > 1) {
        const T& rows = FactorOf(u, parameter, "row_var").lerp_(MeanOfSquares(gradient, -1), fresh);
        const T& cols = FactorOf(u, parameter, "col_var").lerp_(MeanOfSquares(gradient, -2), fresh);
        estimate = rows.matmul(cols);
        estimate.div_(rows.mean({-2}, /*keepdim=*/true).clamp_min_(eps));
      } else {
        estimate = FactorOf(u, parameter, "variance").lerp_(gradient.square(), fresh).clone();
      }
      const T update = estimate.clamp_min_(eps * eps).rsqrt_().mul_(gradient);
      p.add_(update, -lr / std::max(1.0, Rms(update) / largest));
    });
  };
}

/// Jordan et al., https://kellerjordan.github.io/posts/muon.
Rule Muon(const Value& o) {
  std::vector<double> coefficients;
  for (const Value& c : o["ns_coefficients"].as_list()) coefficients.push_back(c.as_double());
  const double decay = o["weight_decay"].as_double(), momentum = o["momentum"].as_double();
  const double eps = o["eps"].as_double();
  const int64_t steps = o["ns_steps"].as_int();
  const bool nesterov = o["nesterov"].as_bool();
  const bool as_adamw = o["adjust_lr_fn"] == Value("match_rms_adamw");
  return [=](const Updated& u, const UpdateStep& now) {
    ForParameters(u, now, /*maximize=*/false, [&](const PlacedParameter& parameter, const T& g) {
      const T& p = parameter.value;
      const T average = u.moments[0].narrow(0, parameter.offset, p.numel()).view(p.sizes());
      average.lerp_(g, 1 - momentum);
      const T update =
          Orthogonal(nesterov ? g.lerp(average, momentum) : average, coefficients, steps, eps);
      const auto a = static_cast<double>(p.size(0)), b = static_cast<double>(p.size(1));
      const double ratio =
          as_adamw ? 0.2 * std::sqrt(std::max(a, b)) : std::sqrt(std::max(1.0, a / b));
      p.mul_(1 - now.lr * decay);
      p.add_(update, -now.lr * ratio);
    });
  };
}

}  // namespace strata
