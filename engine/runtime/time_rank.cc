#include "engine/runtime/time_rank.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>
#include <utility>

namespace strata {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWindows = 2, kProducts = 4;
constexpr double kWindowSeconds = 0.2;
constexpr int64_t kSide = 192, kCopied = 1 << 18;

std::vector<double> given_rates;  // of WithRankRates

/// The work, with everything allocated once.
class Unit {
 public:
  explicit Unit(at::Device device)
      : a_(at::ones({kSide, kSide}, at::device(device))),
        product_(at::empty_like(a_)),
        from_(at::ones({kCopied}, at::device(device))),
        to_(at::empty_like(from_)) {}

  /// Does the work; reading a number waits for the device.
  void Do() {
    for (int i = 0; i < kProducts; ++i) at::mm_out(product_, a_, a_);
    to_.copy_(from_);
    product_.flatten()[0].item<float>();
    to_[0].item<float>();
  }

 private:
  at::Tensor a_, product_, from_, to_;
};

}  // namespace

WithRankRates::WithRankRates(std::vector<double> rates) { given_rates = std::move(rates); }

WithRankRates::~WithRankRates() { given_rates.clear(); }

double TimeRank(at::Device device, int rank) {
  if (!given_rates.empty()) return given_rates.at(static_cast<size_t>(rank));
  Unit unit(device);
  unit.Do();  // starts threads and takes memory
  double best = 0;
  for (int window = 0; window < kWindows; ++window) {
    const auto begin = Clock::now();
    const auto seconds = [&] {
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    int units = 0;
    for (; units == 0 || seconds() < kWindowSeconds; ++units) unit.Do();
    best = std::max(best, units / seconds());
  }
  return best;
}

}  // namespace strata
