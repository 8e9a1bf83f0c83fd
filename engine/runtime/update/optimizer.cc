// One Update for each flat buffer: ATen's fused kernel with the options of its group.
#include "engine/runtime/update/optimizer.h"

#include <ATen/ops/_fused_adam.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/spec/job/parameter_groups.h"

namespace strata {
namespace {

/// One flat buffer with the options of its group and the moments kept for it.
class Update {
 public:
  explicit Update(FlatBuffer buffer) : buffer_(std::move(buffer)) {}
  virtual ~Update() = default;
  virtual void Step(double lr_factor, double divisor) = 0;
  virtual std::vector<Moment> Moments() const = 0;
  virtual void set_steps_done(int64_t steps) = 0;
  const FlatBuffer& buffer() const { return buffer_; }

 protected:
  at::Tensor Zeros() const { return at::zeros_like(buffer_.values); }
  /// What the kernels call grad_scale: they divide the gradients by it.
  at::Tensor Scale(double divisor) const {
    return at::full({}, divisor, at::dtype(at::kFloat).device(buffer_.values.device()));
  }

  FlatBuffer buffer_;
};

/// torch.optim.SGD.
class Sgd : public Update {
 public:
  Sgd(FlatBuffer buffer, const Value& options)
      : Update(std::move(buffer)),
        lr_(options["lr"].as_double()),
        momentum_(options["momentum"].as_double()),
        dampening_(options["dampening"].as_double()),
        weight_decay_(options["weight_decay"].as_double()),
        nesterov_(options["nesterov"].as_bool()) {
    if (momentum_ != 0) momentum_buffers_ = {Zeros()};
  }

  void Step(double lr_factor, double divisor) override {
    at::_fused_sgd_(buffer_.values, buffer_.gradients, momentum_buffers_, weight_decay_, momentum_,
                    lr_ * lr_factor, dampening_, nesterov_, /*maximize=*/false, first_,
                    Scale(divisor));
    first_ = false;
  }

  std::vector<Moment> Moments() const override {
    if (momentum_buffers_.empty()) return {};
    return {{"momentum_buffer", momentum_buffers_[0]}};
  }
  void set_steps_done(int64_t steps) override { first_ = steps == 0; }

 private:
  double lr_, momentum_, dampening_, weight_decay_;
  bool nesterov_;
  bool first_ = true;
  std::vector<at::Tensor> momentum_buffers_;  // empty without momentum
};

/// torch.optim.Adam and AdamW, which differ in what weight decay is added to.
class Adam : public Update {
 public:
  Adam(FlatBuffer buffer, const Value& options, bool decoupled)
      : Update(std::move(buffer)),
        decoupled_(decoupled),
        lr_(options["lr"].as_double()),
        beta1_(options["betas"].as_list().at(0).as_double()),
        beta2_(options["betas"].as_list().at(1).as_double()),
        eps_(options["eps"].as_double()),
        weight_decay_(options["weight_decay"].as_double()),
        amsgrad_(options.Has("amsgrad") && options["amsgrad"].as_bool()),
        averages_(Zeros()),
        squares_(Zeros()),
        steps_(at::zeros({}, at::dtype(at::kFloat).device(buffer_.values.device()))) {
    if (amsgrad_) max_squares_ = {Zeros()};
  }

  void Step(double lr_factor, double divisor) override {
    steps_.add_(1);
    if (decoupled_) {
      Run([](const auto&... arguments) { at::_fused_adamw_(arguments...); }, lr_factor, divisor);
    } else {
      Run([](const auto&... arguments) { at::_fused_adam_(arguments...); }, lr_factor, divisor);
    }
  }

  std::vector<Moment> Moments() const override {
    std::vector<Moment> moments = {{"exp_avg", averages_}, {"exp_avg_sq", squares_}};
    if (amsgrad_) moments.push_back({"max_exp_avg_sq", max_squares_[0]});
    return moments;
  }
  void set_steps_done(int64_t steps) override { steps_.fill_(steps); }

 private:
  template <class Kernel>
  void Run(const Kernel& kernel, double lr_factor, double divisor) {
    kernel(at::TensorList(buffer_.values), at::TensorList(buffer_.gradients),
           at::TensorList(averages_), at::TensorList(squares_), at::TensorList(max_squares_),
           at::TensorList(steps_), lr_ * lr_factor, beta1_, beta2_, weight_decay_, eps_, amsgrad_,
           /*maximize=*/false, std::optional<at::Tensor>(Scale(divisor)),
           std::optional<at::Tensor>());
  }

  bool decoupled_;
  double lr_, beta1_, beta2_, eps_, weight_decay_;
  bool amsgrad_;
  at::Tensor averages_, squares_, steps_;
  std::vector<at::Tensor> max_squares_;  // empty without amsgrad
};

using Maker = std::unique_ptr<Update> (*)(FlatBuffer, const Value& options);

template <class Kind, auto... arguments>
std::unique_ptr<Update> Make(FlatBuffer buffer, const Value& options) {
  return std::make_unique<Kind>(std::move(buffer), options, arguments...);
}

struct OptimizerType {
  const char* name;
  Maker make;
};

constexpr OptimizerType kTypes[] = {{"sgd", Make<Sgd>},
                                    {"adam", Make<Adam, /*decoupled=*/false>},
                                    {"adamw", Make<Adam, /*decoupled=*/true>}};

Maker FindMaker(const std::string& name) {
  std::vector<std::string> names;
  for (const OptimizerType& type : kTypes) {
    if (name == type.name) return type.make;
    names.push_back(type.name);
  }
  throw ConfigError(Str("no optimizer \"", name, "\"", DidYouMean(name, names)));
}

class FlatOptimizer : public Optimizer {
 public:
  explicit FlatOptimizer(std::vector<std::unique_ptr<Update>> updates)
      : updates_(std::move(updates)) {}
  void Step(double lr_factor, double divisor) override {
    for (const auto& update : updates_) update->Step(lr_factor, divisor);
  }
  std::vector<OptimizerState> state() const override {
    std::vector<OptimizerState> states;
    for (const auto& update : updates_) states.push_back({update->buffer(), update->Moments()});
    return states;
  }
  void set_steps_done(int64_t steps) override {
    for (const auto& update : updates_) update->set_steps_done(steps);
  }

 private:
  std::vector<std::unique_ptr<Update>> updates_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerSpec& spec,
                                         std::vector<FlatBuffer> buffers) {
  const Maker make = FindMaker(spec.type);
  std::vector<std::unique_ptr<Update>> updates;
  for (FlatBuffer& buffer : buffers) {
    const Value options = GroupOptions(spec, buffer.group);
    updates.push_back(make(std::move(buffer), options));
  }
  return std::make_unique<FlatOptimizer>(std::move(updates));
}

double ClipFactor(double max_norm, double norm) {
  if (max_norm == 0) return 1;
  return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace strata
