#include "engine/forecast/check_cost.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "engine/base/text.h"
#include "engine/forecast/forecast_text.h"

namespace strata {
namespace {

// Estimates for a core; no checked step was compared with them yet.
constexpr double kInitSeconds = 6e-9;     // per element with random initial values
constexpr double kActionPasses = 9;       // over what is sent of the actions: 6 copies, 3 digests
constexpr double kUpdatePasses = 8;       // over what is sent of the update
constexpr double kDigestRate = 8e9;       // bytes per second that are digested
constexpr double kCopyRate = 4e9;         // bytes per second that are copied, page faults included
constexpr double kMeetingSeconds = 1e-4;  // of a gather of all ranks

}  // namespace

CheckCost ForecastCheck(const Job& job, const Plan& plan, const StepForecast& step) {
  const auto micro_batches = static_cast<double>(plan.batch.micro_batches);
  const double state_bytes = step.costs.state_bytes;
  std::vector<double> memory(plan.topology.Size(kPipeAxis)), stages(memory.size());
  double seconds = 0, messages = 0;
  for (const StagePlan& place : plan.stages) ++stages[static_cast<size_t>(place.rank)];
  for (const StagePlan& place : plan.stages) {
    const StageCost& stage = step.stages[static_cast<size_t>(place.stage)];
    const auto parameters = static_cast<double>(stage.parameters);
    const auto weights = static_cast<double>(stage.weight_bytes);
    const auto gradients = static_cast<double>(stage.gradient_bytes);
    const double state = parameters * state_bytes + static_cast<double>(stage.extra_state_bytes);
    const auto crossing = static_cast<double>(stage.input_bytes + stage.output_bytes);
    const double sent = kActionPasses * (weights + gradients + 2 * crossing) +
                        kUpdatePasses * (weights + gradients + state);
    const double repeated = stage.seconds() + 2 * parameters * kInitSeconds +
                            parameters * step.costs.update_seconds + sent / kCopyRate;
    // Each rank is drawn as often, then each of its stages.
    const auto rank = static_cast<size_t>(place.rank);
    seconds += repeated / stages[rank] / static_cast<double>(stages.size());
    memory[rank] += weights + state;
    messages = std::max(messages, 2 * crossing * micro_batches * stages[rank]);
  }
  seconds += (2 * std::ranges::max(memory) + messages) / kDigestRate + 2 * kMeetingSeconds;
  CheckCost cost = {.seconds = seconds, .every = job.check.every};
  cost.memory = CheckBytes(step.stages, state_bytes);
  if (job.check.share > 0) {
    const double least = seconds * (1 - job.check.share) / job.check.share;
    cost.every = std::max<int64_t>(1, std::llround(std::ceil(least / step.step())));
  }
  cost.share = seconds / (seconds + static_cast<double>(cost.every) * step.step());
  return cost;
}

std::string CheckText(const CheckCost& cost) {
  return Str("a checked step takes ", FormatSeconds(cost.seconds), " longer and ",
             ShowBytes(cost.memory), " more on a rank; every ", Plural(cost.every, "step"),
             ", that is ", FormatShare(cost.share), " of the time");
}

}  // namespace strata
