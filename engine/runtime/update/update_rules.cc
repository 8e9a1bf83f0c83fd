// The formulas are those of torch.optim's single-tensor functions, operator by operator, so that
// results agree with PyTorch's.
#include "engine/runtime/update/update_rules.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>

#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/tensors/allocator.h"
#include "engine/base/text.h"
#include "engine/layers/cuda/adam_kernel.h"

namespace strata {
namespace {

using T = at::Tensor;

double Number(const Value& options, const char* name) { return options[name].as_double(); }
double Beta(const Value& options, int place) {
  return options["betas"].as_list().at(place).as_double();
}

T Scalar(double value, const T& like) {
  return at::full({}, value, at::dtype(at::kFloat).device(like.device()));
}

// ---- Fused kernels: ours on a GPU, otherwise ATen's, which divide by an argument that they call
// grad_scale ----

/// Adam and AdamW differ in whether weight decay is added to the gradient or applied to the values.
Rule Adam(const Value& o, bool decoupled) {
  return [=, beta1 = Beta(o, 0), beta2 = Beta(o, 1), eps = Number(o, "eps"),
          decay = Number(o, "weight_decay"), amsgrad = o["amsgrad"].as_bool(),
          maximize = o["maximize"].as_bool()](const Updated& u, const UpdateStep& now) {
    const AdamCall call = {.values = u.values,
                           .gradients = u.gradients,
                           .averages = u.moments[0],
                           .squares = u.moments[1],
                           .copy = u.copy,
                           .step = now.step,
                           .lr = now.lr,
                           .divisor = now.divisor,
                           .beta1 = beta1,
                           .beta2 = beta2,
                           .eps = eps,
                           .decay = decay,
                           .decoupled = decoupled,
                           .maximize = maximize};
    if (!amsgrad && AdamByKernel(call)) {
      if (u.wrote_copy) *u.wrote_copy = true;
      return;
    }
    std::vector<T> largest(u.moments.begin() + 2, u.moments.end());
    const T steps = Scalar(static_cast<double>(now.step), u.values);
    const auto run = [&](const auto& kernel) {
      kernel(at::TensorList(u.values), at::TensorList(u.gradients), at::TensorList(u.moments[0]),
             at::TensorList(u.moments[1]), at::TensorList(largest), at::TensorList(steps), now.lr,
             beta1, beta2, decay, eps, amsgrad, maximize,
             std::optional<T>(Scalar(now.divisor, u.values)), std::optional<T>());
    };
    decoupled ? run([](const auto&... arguments) { at::_fused_adamw_(arguments...); })
              : run([](const auto&... arguments) { at::_fused_adam_(arguments...); });
  };
}

// ---- Elementwise rules ----

/// A piece of the parameters with its gradient (divided, negated to maximize) and its moments.
struct Piece {
  T p, g;
  std::vector<T> m;
};
using OnPiece = std::function<void(Piece&)>;
/// Given the numbers of a step, returns what the step does to each piece.
using OnStep = std::function<OnPiece(const UpdateStep&)>;

/// Pieces on the CPU are small, so that temporaries stay in the cache, and each is processed by one
/// thread. Elementwise operators give an element the same bits wherever it is in memory, except
/// add() (see AddScaled). So the bits depend neither on the number of threads nor on the pieces or
/// the plan.
constexpr int64_t kPieceOnCpu = 1 << 14;
constexpr int64_t kPieceOnDevice = 1 << 26;

void ForPieces(const Updated& u, const UpdateStep& now, bool maximize, const OnPiece& work) {
  const int64_t size = u.values.is_cpu() ? kPieceOnCpu : kPieceOnDevice, all = u.values.numel();
  const auto one = [&](int64_t i) {
    const int64_t begin = i * size, count = std::min(size, all - begin);
    const auto part = [&](const T& flat) { return flat.narrow(0, begin, count); };
    Piece piece = {part(u.values), part(u.gradients), {}};
    for (const T& moment : u.moments) piece.m.push_back(part(moment));
    if (now.divisor != 1) piece.g.div_(now.divisor);
    if (maximize) piece.g = piece.g.neg();
    work(piece);
  };
  const int64_t pieces = (all + size - 1) / size;
  if (!u.values.is_cpu()) {
    for (int64_t i = 0; i < pieces; ++i) one(i);
    return;
  }
  at::parallel_for(0, pieces, 1, [&](int64_t begin, int64_t end) {
    const at::NoGradGuard no_grad;
    for (int64_t i = begin; i < end; ++i) one(i);
  });
}

Rule Elementwise(const Value& options, OnStep on_step) {
  return
      [maximize = options["maximize"].as_bool(), on_step = std::move(on_step)](
          const Updated& u, const UpdateStep& now) { ForPieces(u, now, maximize, on_step(now)); };
}

/// ATen's add() on the CPU rounds half types differently inside its vector loop and in the
/// remainder after it.
bool RoundsByPlace(const T& x) { return x.is_cpu() && at::isReducedFloatingType(x.scalar_type()); }

/// to += factor * x
T AddScaled(const T& to, const T& x, double factor) {
  if (!RoundsByPlace(to)) return to.add_(x, factor);
  return to.addcmul_(x, at::ones({}, to.options()), factor);
}

/// a + factor * x
T SumScaled(const T& a, const T& x, double factor) {
  return RoundsByPlace(a) ? AddScaled(a.clone(), x, factor) : a.add(x, factor);
}

/// Adds weight decay to the gradient.
void AddDecay(Piece& x, double decay) {
  if (decay != 0) x.g = SumScaled(x.g, x.p, decay);
}

/// LibTorch 2.11's fused SGD kernel on the CPU leaves most elements of half types unchanged, so
/// these types use the rule in ATen's operators.
Rule Sgd(const Value& o) {
  const double momentum = Number(o, "momentum"), dampening = Number(o, "dampening"),
               decay = Number(o, "weight_decay");
  const bool nesterov = o["nesterov"].as_bool(), maximize = o["maximize"].as_bool();
  const auto on_step = [=](const UpdateStep& now) {
    return [=, lr = now.lr, is_first = now.step == 1](Piece& x) {
      AddDecay(x, decay);
      if (momentum != 0) {
        T& sum = x.m[0];
        is_first ? sum.copy_(x.g) : AddScaled(sum.mul_(momentum), x.g, 1 - dampening);
        x.g = nesterov ? SumScaled(x.g, sum, momentum) : sum;
      }
      AddScaled(x.p, x.g, -lr);
    };
  };
  return [=](const Updated& u, const UpdateStep& now) {
    const bool begins_moments = now.step == 1 && momentum != 0;
    if (RoundsByPlace(u.values)) return ForPieces(u, now, maximize, on_step(now));
    at::_fused_sgd_(u.values, u.gradients, u.moments, decay, momentum, now.lr, dampening, nesterov,
                    maximize, begins_moments, Scalar(now.divisor, u.values));
  };
}

/// Applies weight decay. `own`: to the parameter (decoupled) instead of the gradient.
void Decay(Piece& x, double decay, bool own, double lr) {
  if (own && decay != 0) {
    x.p.mul_(1 - lr * decay);
  } else {
    AddDecay(x, decay);
  }
}

/// Updates the running averages of Adam's family: of the gradient and of its square.
void Average(const Piece& x, double beta1, double beta2) {
  x.m[0].lerp_(x.g, 1 - beta1);
  x.m[1].mul_(beta2).addcmul_(x.g, x.g, 1 - beta2);
}

Rule RmsProp(const Value& o) {
  const double alpha = Number(o, "alpha"), eps = Number(o, "eps"),
               decay = Number(o, "weight_decay");
  const double momentum = Number(o, "momentum");
  const bool centered = o["centered"].as_bool();
  return Elementwise(o, [=](const UpdateStep& now) {
    return [=, lr = now.lr](Piece& x) {
      AddDecay(x, decay);
      x.m[0].mul_(alpha).addcmul_(x.g, x.g, 1 - alpha);
      T mean = x.m[0];
      if (centered) {
        T& gradient = x.m.back();
        gradient.lerp_(x.g, 1 - alpha);
        mean = mean.addcmul(gradient, gradient, -1);
      }
      const T divisor = mean.sqrt().add_(eps);
      if (momentum > 0) {
        x.m[1].mul_(momentum).addcdiv_(x.g, divisor);
        AddScaled(x.p, x.m[1], -lr);
      } else {
        x.p.addcdiv_(x.g, divisor, -lr);
      }
    };
  });
}

Rule Adagrad(const Value& o) {
  const double lr_decay = Number(o, "lr_decay"), decay = Number(o, "weight_decay");
  const double first = Number(o, "initial_accumulator_value"), eps = Number(o, "eps");
  return Elementwise(o, [=](const UpdateStep& now) {
    const double lr = now.lr / (1 + static_cast<double>(now.step - 1) * lr_decay);
    return [=, is_first = now.step == 1](Piece& x) {
      AddDecay(x, decay);
      if (is_first) x.m[0].fill_(first);
      x.m[0].addcmul_(x.g, x.g, 1);
      x.p.addcdiv_(x.g, x.m[0].sqrt().add_(eps), -lr);
    };
  });
}

Rule Adadelta(const Value& o) {
  const double rho = Number(o, "rho"), eps = Number(o, "eps"), decay = Number(o, "weight_decay");
  return Elementwise(o, [=](const UpdateStep& now) {
    return [=, lr = now.lr](Piece& x) {
      AddDecay(x, decay);
      x.m[0].mul_(rho).addcmul_(x.g, x.g, 1 - rho);
      const T divisor = x.m[0].add(eps).sqrt_();
      const T delta = x.m[1].add(eps).sqrt_().div_(divisor).mul_(x.g);
      x.m[1].mul_(rho).addcmul_(delta, delta, 1 - rho);
      AddScaled(x.p, delta, -lr);
    };
  });
}

Rule NAdam(const Value& o) {
  const double beta1 = Beta(o, 0), beta2 = Beta(o, 1), eps = Number(o, "eps");
  const double decay = Number(o, "weight_decay"), slow = Number(o, "momentum_decay");
  const bool own = o["decoupled_weight_decay"].as_bool();
  const auto momentum = [=](int64_t step) {
    return beta1 * (1 - 0.5 * std::pow(0.96, static_cast<double>(step) * slow));
  };
  // `product`: the product of the momentums of `steps` steps. It is a float in PyTorch as well.
  return Elementwise(o, [=, product = 1.0F, steps = int64_t{0}](const UpdateStep& now) mutable {
    if (steps >= now.step) product = 1, steps = 0;
    while (steps < now.step) product *= static_cast<float>(momentum(++steps));
    const double mu = momentum(now.step), next = momentum(now.step + 1);
    const double of_gradient = -now.lr * (1 - mu) / (1 - product);
    const double of_average = -now.lr * next / (1 - product * next);
    const double correction = 1 - std::pow(beta2, static_cast<double>(now.step));
    return [=, lr = now.lr](Piece& x) {
      Decay(x, decay, own, lr);
      Average(x, beta1, beta2);
      const T divisor = x.m[1].div(correction).sqrt_().add_(eps);
      x.p.addcdiv_(x.g, divisor, of_gradient);
      x.p.addcdiv_(x.m[0], divisor, of_average);
    };
  });
}

Rule RAdam(const Value& o) {
  const double beta1 = Beta(o, 0), beta2 = Beta(o, 1), eps = Number(o, "eps");
  const double decay = Number(o, "weight_decay");
  const bool own = o["decoupled_weight_decay"].as_bool();
  return Elementwise(o, [=](const UpdateStep& now) {
    const auto step = static_cast<double>(now.step);
    const double correction1 = 1 - std::pow(beta1, step), correction2 = 1 - std::pow(beta2, step);
    const double most = 2 / (1 - beta2) - 1;
    const double length = most - 2 * step * std::pow(beta2, step) / correction2;
    const double rectified =
        std::sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
    return [=, lr = now.lr](Piece& x) {
      Decay(x, decay, own, lr);
      Average(x, beta1, beta2);
      T update = x.m[0].div(correction1).mul_(lr);
      if (length > 5) {
        const T divisor = x.m[1].sqrt().add_(eps);
        update.mul_(divisor.reciprocal_().mul_(std::sqrt(correction2))).mul_(rectified);
      }
      x.p.sub_(update);
    };
  });
}

Rule Adamax(const Value& o) {
  const double beta1 = Beta(o, 0), beta2 = Beta(o, 1), eps = Number(o, "eps");
  const double decay = Number(o, "weight_decay");
  return Elementwise(o, [=](const UpdateStep& now) {
    const double lr = now.lr / (1 - std::pow(beta1, static_cast<double>(now.step)));
    return [=](Piece& x) {
      AddDecay(x, decay);
      x.m[0].lerp_(x.g, 1 - beta1);
      at::maximum_out(x.m[1], x.m[1].mul_(beta2), x.g.abs().add_(eps));
      x.p.addcdiv_(x.m[0], x.m[1], -lr);
    };
  });
}

/// Lion: Chen et al., arXiv:2302.06675.
Rule Lion(const Value& o) {
  const double beta1 = Beta(o, 0), beta2 = Beta(o, 1), decay = Number(o, "weight_decay");
  return Elementwise(o, [=](const UpdateStep& now) {
    return [=, lr = now.lr](Piece& x) {
      Decay(x, decay, /*own=*/true, lr);
      AddScaled(x.p, AddScaled(x.m[0].mul(beta1), x.g, 1 - beta1).sign_(), -lr);
      AddScaled(x.m[0].mul_(beta2), x.g, 1 - beta2);
    };
  });
}

struct RuleType {
  const char* name;
  Rule (*make)(const Value& options);
};

constexpr RuleType kTypes[] = {
    {"sgd", Sgd},
    {"adam", [](const Value& o) { return Adam(o, o["decoupled_weight_decay"].as_bool()); }},
    {"adamw", [](const Value& o) { return Adam(o, /*decoupled=*/true); }},
    {"rmsprop", RmsProp},
    {"adagrad", Adagrad},
    {"adadelta", Adadelta},
    {"nadam", NAdam},
    {"radam", RAdam},
    {"adamax", Adamax},
    {"lion", Lion},
    {"adafactor", Adafactor},
    {"muon", Muon},
};

}  // namespace

Rule MakeRule(const std::string& type, const Value& options) {
  std::vector<std::string> names;
  for (const RuleType& known : kTypes) {
    if (type == known.name) return known.make(options);
    names.push_back(known.name);
  }
  throw ConfigError(Str("no optimizer \"", type, "\"", DidYouMean(type, names)));
}

}  // namespace strata
