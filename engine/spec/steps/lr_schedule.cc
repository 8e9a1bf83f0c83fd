#include "engine/spec/steps/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/spec/fields/fields.h"

namespace strata {
namespace {

double FunctionFactor(const FunctionRef& function, int64_t step, Script* script) {
  STRATA_CHECK(script != nullptr) << function.where;
  const Value factor = script->Call(function, {Value(step)});
  if (factor.is_number() && std::isfinite(factor.as_double())) return factor.as_double();
  throw ConfigError(Str(Place(function.where),
                        "lr_schedule expects its function to return a finite number; got ",
                        factor.Describe(), " at step ", step));
}

/// The share of the decay that is over, from 0 to 1.
double Progress(const LrScheduleSpec& spec, int64_t t, int64_t total_steps) {
  const Value& steps = spec.options["steps"];
  const int64_t length =
      steps.is_null() ? total_steps - spec.options["warmup"].as_int() : steps.as_int();
  if (length <= 0 && steps.is_null() && total_steps <= 0) {
    throw ConfigError(Str("lr_schedule \"", spec.type,
                          "\" needs steps, since the length of the training is not known"));
  }
  return length <= 0 ? 1 : std::min(1.0, static_cast<double>(t) / static_cast<double>(length));
}

double DecayFactor(const LrScheduleSpec& spec, int64_t t, int64_t total_steps) {
  const double final = spec.options["final"].as_double();
  const double progress = Progress(spec, t, total_steps);
  if (spec.type == "linear") return 1 + (final - 1) * progress;
  STRATA_CHECK(spec.type == "cosine") << spec.type;
  return final + (1 - final) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

}  // namespace

double LrFactor(const LrScheduleSpec& spec, int64_t step, int64_t total_steps, Script* script) {
  if (spec.type == "function") return FunctionFactor(spec.function, step, script);
  if (spec.type == "constant") return 1;
  const char* rise = spec.type == "warmup" ? "steps" : "warmup";
  const int64_t warmup = spec.options[rise].as_int();
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup + 1);
  if (spec.type == "warmup") return 1;
  const int64_t t = step - warmup;
  if (spec.type == "step") {
    const int64_t drops = t / spec.options["every"].as_int();
    return std::pow(spec.options["gamma"].as_double(), static_cast<double>(drops));
  }
  return DecayFactor(spec, t, total_steps);
}

}  // namespace strata
