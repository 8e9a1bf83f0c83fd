// Finds the first difference between two trainings.
#include "launcher/commands/run_record.h"

#include <algorithm>
#include <cmath>

#include "engine/base/text.h"
#include "engine/runtime/records.h"

namespace strata::launcher {
namespace {

/// The names of the two runs, and the test for a difference.
struct Sides {
  const std::string& a;
  const std::string& b;
  double tolerance;

  bool Same(double left, double right, double factor = 1) const {
    if (left == right || (std::isnan(left) && std::isnan(right))) return true;
    const double larger = std::max(std::abs(left), std::abs(right));
    if (tolerance == 0 || !std::isfinite(larger)) return false;
    return std::abs(left - right) <= factor * tolerance * larger;
  }
  /// `whole`: the norm of all tensors together. A gradient that is 0 up to rounding, such as that
  /// of a bias before a BatchNorm, has no correct digit; but it is small against `whole`, so it
  /// counts as equal.
  bool Same(const TensorDigest& left, const TensorDigest& right, double whole) const {
    if (tolerance == 0) return left.digest == right.digest;
    const double least = std::isfinite(whole) ? tolerance * whole : 0;
    return Same(left.norm, right.norm, 10) || std::abs(left.norm - right.norm) <= least;
  }

  template <class T>
  std::string Show(const std::string& what, const T& left, const T& right) const {
    return Str(what, " differs: ", left, " with ", a, ", ", right, " with ", b);
  }
};

std::string Show(const TensorDigest& tensor) {
  return Str(tensor.digest, " (norm ", FormatDouble(tensor.norm), ")");
}

std::string NumberDifference(const Sides& sides, const std::string& what, double a, double b) {
  return sides.Same(a, b) ? "" : sides.Show(what, FormatDouble(a), FormatDouble(b));
}

std::string LossesDifference(const Sides& sides, const std::vector<double>& a,
                             const std::vector<double>& b) {
  if (a.size() != b.size()) return sides.Show("the number of micro-batches", a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const std::string what = Str("the loss of micro-batch ", i);
    const std::string difference = NumberDifference(sides, what, a[i], b[i]);
    if (!difference.empty()) return difference;
  }
  return "";
}

double WholeNorm(const std::vector<TensorDigest>& tensors) {
  double squares = 0;
  for (const TensorDigest& tensor : tensors) squares += tensor.norm * tensor.norm;
  return std::sqrt(squares);
}

std::string TensorsDifference(const Sides& sides, const std::string& kind,
                              const std::vector<TensorDigest>& a,
                              const std::vector<TensorDigest>& b) {
  const double whole = std::max(WholeNorm(a), WholeNorm(b));
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i].path != b[i].path)
      return sides.Show("the list of " + kind + "s", a[i].path, b[i].path);
    if (!sides.Same(a[i], b[i], whole)) {
      return sides.Show(Str("the ", kind, " ", a[i].path), Show(a[i]), Show(b[i]));
    }
  }
  return a.size() == b.size() ? ""
                              : sides.Show(Str("the number of ", kind, "s"), a.size(), b.size());
}

std::string StepDifference(const Sides& sides, const StepNumbers& a, const StepNumbers& b) {
  std::string difference = LossesDifference(sides, a.micro_batch_losses, b.micro_batch_losses);
  if (difference.empty()) difference = NumberDifference(sides, "the loss", a.loss, b.loss);
  if (difference.empty()) {
    difference = TensorsDifference(sides, "gradient", a.gradients, b.gradients);
  }
  if (difference.empty()) {
    difference = NumberDifference(sides, "the gradient's norm", a.grad_norm, b.grad_norm);
  }
  return difference;
}

}  // namespace

Value VerifiedStepValue(const StepNumbers& result) {
  const auto& losses = result.micro_batch_losses;
  return Value::MakeMap({{"step", result.step},
                         {"loss", result.loss},
                         {"grad_norm", result.grad_norm},
                         {"micro_batch_losses", Value::List(losses.begin(), losses.end())},
                         {"gradients", DigestsValue(result.gradients)}});
}

StepNumbers VerifiedStepFrom(const Value& value) {
  StepNumbers result;
  result.step = value["step"].as_int();
  result.loss = NumberOf(value["loss"]);
  result.grad_norm = NumberOf(value["grad_norm"]);
  for (const Value& loss : value["micro_batch_losses"].as_list()) {
    result.micro_batch_losses.push_back(NumberOf(loss));
  }
  result.gradients = DigestsFrom(value["gradients"]);
  return result;
}

std::string FirstDifference(const RunRecord& a, const RunRecord& b, double tolerance) {
  const Sides sides = {a.name, b.name, tolerance};
  for (size_t i = 0; i < std::min(a.steps.size(), b.steps.size()); ++i) {
    const std::string difference = StepDifference(sides, a.steps[i], b.steps[i]);
    if (!difference.empty()) return Str("step ", i, ": ", difference);
  }
  if (a.steps.size() != b.steps.size()) {
    return sides.Show("the number of steps", a.steps.size(), b.steps.size());
  }
  const std::string difference = TensorsDifference(sides, "parameter", a.parameters, b.parameters);
  return difference.empty() ? "" : Str("after the last step: ", difference);
}

}  // namespace strata::launcher
