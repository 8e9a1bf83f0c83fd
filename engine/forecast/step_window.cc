#include "engine/forecast/step_window.h"

#include <utility>

#include "engine/base/median.h"

namespace strata {

std::optional<MeasuredStep> StepWindow::Add(const MeasuredStep& step) {
  if (unsettled_ > 0) {
    --unsettled_;
    return std::nullopt;
  }
  steps_.push_back(step);
  if (steps_.size() < kSteps) return std::nullopt;
  MeasuredStep medians = Medians();
  steps_.clear();
  return medians;
}

std::optional<MeasuredStep> StepWindow::Rest() const {
  if (steps_.size() < kFewest) return std::nullopt;
  return Medians();
}

void StepWindow::Restart() {
  steps_.clear();
  unsettled_ = kUnsettled;
}

MeasuredStep StepWindow::Medians() const {
  const auto median = [&](const auto& number_of) {
    std::vector<double> numbers;
    for (const MeasuredStep& step : steps_) numbers.push_back(number_of(step));
    return Median(std::move(numbers));
  };
  MeasuredStep result;
  for (double MeasuredStep::*number :
       {&MeasuredStep::seconds, &MeasuredStep::clear, &MeasuredStep::norm, &MeasuredStep::update,
        &MeasuredStep::processor_share}) {
    result.*number = median([=](const MeasuredStep& step) { return step.*number; });
  }
  for (size_t s = 0; s < steps_.front().stages.size(); ++s) {
    result.stages.push_back(
        {median([s](const MeasuredStep& step) { return step.stages[s].forward; }),
         median([s](const MeasuredStep& step) { return step.stages[s].backward; })});
  }
  return result;
}

}  // namespace strata
