// Each channel takes two passes over its values: one for the mean, one for the sum of squared
// deviations. Value i of a plane is added to sum number i mod 16, in double. So the compiler can
// add 16 values at once, and the order of summation is fixed; it does not depend on the number of
// threads, each of which has whole channels. ATen then normalizes with these statistics, in its
// inference mode, and ATen computes the backward.
#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/kernels/batch_norm.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <array>
#include <cmath>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/base/tensors/dry_run.h"
#include "engine/layers/kernels/avx512.h"

namespace strata {
namespace {

constexpr int64_t kLanes = 16;
constexpr int64_t kLeastPlane = 8;

using Lanes = std::array<double, kLanes>;

double Sum(const Lanes& lanes) { return std::accumulate(lanes.begin(), lanes.end(), 0.0); }

/// Adds (values[i] - shift)^power to lane i mod 16, for all i below `count`.
template <int power>
inline __attribute__((always_inline)) void AddToLanes(const float* values, int64_t count,
                                                      double shift, Lanes& lanes) {
  const auto term = [shift](float value) {
    const double shifted = value - shift;
    return power == 1 ? shifted : shifted * shifted;
  };
  Lanes sums = lanes;
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) sums[lane] += term(values[i + lane]);
  }
  for (int64_t lane = 0; i + lane < count; ++lane) sums[lane] += term(values[i + lane]);
  lanes = sums;
}

STRATA_WIDEST void AddValues(const float* values, int64_t count, Lanes& lanes) {
  AddToLanes<1>(values, count, 0, lanes);
}

STRATA_WIDEST void AddSquares(const float* values, int64_t count, double mean, Lanes& lanes) {
  AddToLanes<2>(values, count, mean, lanes);
}

bool Fits(const at::Tensor& x) {
  return HasAvx2() && x.device().is_cpu() && x.scalar_type() == at::kFloat && x.dim() > 2 &&
         x.is_contiguous() && x.numel() >= kLeastPlane * x.size(0) * x.size(1) && x.numel() > 0;
}

/// The statistics of each channel, (C). inverse_deviation = 1 / sqrt(variance + eps).
struct Statistics {
  at::Tensor mean, variance, inverse_deviation;
};

Statistics StatisticsOf(const at::Tensor& x, const RunningStatistics& running, double eps) {
  const int64_t samples = x.size(0), channels = x.size(1), plane = x.numel() / samples / channels;
  const double count = static_cast<double>(samples * plane);
  const auto fresh = [&] { return at::empty({channels}, x.options()); };
  const Statistics all = {fresh(), fresh(), fresh()};
  if (DryRun::IsOn()) return all;
  const float* values = x.const_data_ptr<float>();
  const auto data = [](const at::Tensor& t) {
    return t.defined() ? t.mutable_data_ptr<float>() : nullptr;
  };
  float *means = data(all.mean), *variances = data(all.variance),
        *inverse = data(all.inverse_deviation);
  float *running_mean = data(running.mean), *running_variance = data(running.variance);
  const auto move = [&](float& to, double by) {
    to = static_cast<float>(running.momentum * by + (1 - running.momentum) * to);
  };
  at::parallel_for(0, channels, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const auto plane_of = [&](int64_t n) { return values + (n * channels + c) * plane; };
      Lanes sums{}, squares{};
      for (int64_t n = 0; n < samples; ++n) AddValues(plane_of(n), plane, sums);
      const double mean = Sum(sums) / count;
      for (int64_t n = 0; n < samples; ++n) AddSquares(plane_of(n), plane, mean, squares);
      const double sum = Sum(squares), variance = sum / count;
      means[c] = static_cast<float>(mean);
      variances[c] = static_cast<float>(variance);
      inverse[c] = static_cast<float>(1 / std::sqrt(variance + eps));
      if (running_mean) move(running_mean[c], mean);
      if (running_variance) move(running_variance[c], sum / (count - 1));
    }
  });
  return all;
}

class BatchNormNode : public torch::autograd::Node {
 public:
  BatchNormNode(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                Statistics statistics, double eps)
      : torch::autograd::Node(torch::autograd::collect_next_edges(x, weight, bias)),
        x_(x, /*is_output=*/false),
        weight_(weight, /*is_output=*/false),
        statistics_(std::move(statistics)),
        eps_(eps) {}

  torch::autograd::variable_list apply(torch::autograd::variable_list&& grads) override {
    if (!grads[0].defined()) return {at::Tensor(), at::Tensor(), at::Tensor()};
    const std::array<bool, 3> wanted = {task_should_compute_output(0),
                                        task_should_compute_output(1),
                                        task_should_compute_output(2)};
    auto [dx, dweight, dbias] = at::native_batch_norm_backward(
        grads[0], x_.unpack(), weight_.unpack(), /*running_mean=*/{}, /*running_var=*/{},
        statistics_.mean, statistics_.inverse_deviation, /*train=*/true, eps_, wanted);
    return {std::move(dx), std::move(dweight), std::move(dbias)};
  }

  void release_variables() override {
    x_.reset_data();
    weight_.reset_data();
    statistics_ = {};
  }

 private:
  torch::autograd::SavedVariable x_, weight_;
  Statistics statistics_;
  const double eps_;
};

}  // namespace

at::Tensor BatchNormByBatch(const at::Tensor& x, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias, const RunningStatistics& running,
                            double eps) {
  if (!Fits(x)) {
    return at::batch_norm(x, weight, bias, running.mean, running.variance, /*training=*/true,
                          running.momentum, eps, /*cudnn_enabled=*/true);
  }
  const at::Tensor w = weight.value_or(at::Tensor()), b = bias.value_or(at::Tensor());
  Statistics statistics = StatisticsOf(x, running, eps);
  at::Tensor y;
  {
    const at::NoGradGuard no_grad;
    y = std::get<0>(at::native_batch_norm(x, weight, bias, statistics.mean, statistics.variance,
                                          /*training=*/false, 0, eps))
            .variable_data();
  }
  statistics.variance.reset();
  const auto learns = [](const at::Tensor& t) { return t.defined() && t.requires_grad(); };
  if (at::GradMode::is_enabled() && (learns(x) || learns(w) || learns(b))) {
    torch::autograd::set_history(
        y, std::shared_ptr<BatchNormNode>(new BatchNormNode(x, w, b, std::move(statistics), eps),
                                          torch::autograd::deleteNode));
  }
  return y;
}

}  // namespace strata
