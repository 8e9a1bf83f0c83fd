// Times a rank: how fast it does work that is the same on all ranks (ranks = {speed = "measured"}).
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

namespace strata {

/// Units of work per second: a unit is a few matrix products and a copy. Takes 0.4 s. A processor
/// quota shares out periods of 0.1 s, so a window of time is two of them; of two windows the better
/// one counts, since another program may disturb one. Call it on all ranks at once.
double TimeRank(at::Device device, int rank);

/// For tests: while an object lives, TimeRank() gives these rates, by rank, and times nothing.
class WithRankRates {
 public:
  explicit WithRankRates(std::vector<double> rates);
  ~WithRankRates();
  WithRankRates(const WithRankRates&) = delete;
  WithRankRates& operator=(const WithRankRates&) = delete;
};

}  // namespace strata
