// Formats a forecast as text for the user and as values for programs.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/forecast/forecast.h"

namespace strata {

/// Two lines: step time, bubble, slowest stage and balance; then the memory of the fullest rank by
/// kind.
std::string ForecastText(const StepForecast& forecast);
/// {step, bubble, slowest_stage, balance, stages (seconds of a micro-batch), busy, memory, rates}.
Value ForecastValue(const StepForecast& forecast);

/// A table with a line per rank of the pipe axis: weights, gradients, optimizer, activations,
/// buffers.
std::string MemoryText(const std::vector<RankMemory>& ranks);
/// A list of {rank, weights, gradients, optimizer, activations, buffers, total}, in bytes.
Value MemoryValue(const std::vector<RankMemory>& ranks);

/// "0", "1.5 GiB".
std::string ShowBytes(int64_t bytes);
/// "12.3%".
std::string FormatShare(double share);

}  // namespace strata
