// All numbers form one list, in the same order on all ranks, which one all-reduce sums.
#include "engine/runtime/step/totals.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "engine/layers/layer.h"
#include "engine/layers/loss_scope.h"

namespace strata {
namespace {

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

/// Calls the function for every number, in one fixed order.
template <class Function>
void ForEach(Totals& totals, const Function& function) {
  for (auto* list : {&totals.loss_sums, &totals.weights, &totals.part_sums, &totals.squares,
                     &totals.peak_memory, &totals.data_seconds, &totals.busy_seconds,
                     &totals.row_seconds, &totals.stage_seconds, &totals.processor_share}) {
    std::ranges::for_each(*list, function);
  }
  for (double* number : {&totals.clear_seconds, &totals.norm_seconds, &totals.update_seconds,
                         &totals.samples, &totals.correct, &totals.counted, &totals.has_parts,
                         &totals.lr_factor, &totals.recut, &totals.stop, &totals.save}) {
    function(*number);
  }
}

}  // namespace

void Totals::AllReduce(Transport& transport) {
  std::vector<double> numbers;
  ForEach(*this, [&](double& number) { numbers.push_back(number); });
  numbers = transport.AllReduceSum(numbers);
  auto next = numbers.begin();
  ForEach(*this, [&](double& number) { number = *next++; });
}

double Totals::weight() const { return Sum(weights); }

double Totals::mean_loss() const { return Sum(loss_sums) / LossDivisor(weight()); }

double Totals::part_sum(size_t part) const {
  double sum = 0;
  for (size_t i = part; i < part_sums.size(); i += kMostLossParts) sum += part_sums[i];
  return sum;
}

double Totals::idle_share() const {
  const double longest = std::ranges::max(row_seconds);
  const double ranks = static_cast<double>(busy_seconds.size());
  return longest > 0 ? std::max(0.0, 1 - Sum(busy_seconds) / (ranks * longest)) : 0;
}

bool Totals::are_finite() const { return std::isfinite(mean_loss()) && std::isfinite(grad_norm()); }

double Totals::divisor() const { return LossDivisor(weight()) * loss_scale; }

double Totals::grad_norm() const { return std::sqrt(Sum(squares)) / divisor(); }

}  // namespace strata
