#include "engine/plan/rank_speeds.h"

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"

namespace strata {

std::vector<double> SlownessOf(const Topology& topology, const std::vector<double>& speeds) {
  std::vector<double> slowness(static_cast<size_t>(topology.Size(kPipeAxis)), 0.0);
  for (size_t rank = 0; rank < speeds.size(); ++rank) {
    double& pace = slowness[topology.Index(static_cast<int>(rank), kPipeAxis)];
    pace = std::max(pace, 1 / speeds[rank]);
  }
  const bool differ = std::ranges::any_of(slowness, [](double each) { return each != 1; });
  return differ ? slowness : std::vector<double>();
}

std::vector<double> RelativeSpeeds(const std::vector<double>& rates) {
  constexpr double kEqual = 0.9, kSteps = 20;
  const double fastest = std::ranges::max(rates);
  std::vector<double> speeds;
  for (const double rate : rates) {
    const double speed = rate / fastest;
    speeds.push_back(speed >= kEqual ? 1 : std::max(1.0, std::round(kSteps * speed)) / kSteps);
  }
  return speeds;
}

std::string SpeedsText(const std::vector<double>& speeds) {
  std::vector<std::string> texts;
  for (size_t begin = 0, end = 0; begin < speeds.size(); begin = end) {
    while (end < speeds.size() && speeds[end] == speeds[begin]) ++end;
    texts.push_back(Str(FormatDouble(speeds[begin]), end - begin == 1 ? " on rank " : " on ranks ",
                        begin, end - begin == 1 ? "" : Str(" to ", end - 1)));
  }
  return Join(texts, ", ");
}

}  // namespace strata
