// FactorOf() gives the linear warmup, and then the schedule's own function from the table kFactors,
// at the step counted from the end of the warmup. Chains and sequences call FactorOf() again for
// their parts, with the step and the length that the part has. lr_schedule.h has the formulas.
#include "engine/job/lr_schedule.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numbers>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"

namespace strata {
namespace {

/// One question to a schedule: its factor at its step `t`, in a training of `total` steps.
struct At {
  const LrScheduleSpec& spec;
  int64_t t;
  int64_t total;  // 0 = not known
  Script* script;

  const Value& operator[](const char* name) const { return spec.options[name]; }
  double number(const char* name) const { return spec.options[name].as_double(); }
};

double Function(const At& at) {
  const FunctionRef& function = at.spec.function;
  STRATA_CHECK(at.script != nullptr) << function.where;
  const Value factor = at.script->Call(function, {Value(at.t)});
  if (factor.is_number() && std::isfinite(factor.as_double())) return factor.as_double();
  throw ConfigError(Str(Place(function.where),
                        "lr_schedule expects its function to return a finite number; got ",
                        factor.Describe(), " at step ", at.t));
}

int64_t WarmupOf(const LrScheduleSpec& spec) {
  const Value* steps = spec.options.Find(spec.type == "warmup" ? "steps" : "warmup");
  return steps ? steps->as_int() : 0;
}

/// The length of the schedule in steps: its option `steps`, or else the rest of the training.
/// Throws ConfigError if neither is known.
int64_t LengthOf(const At& at) {
  const Value& steps = at["steps"];
  const int64_t length = steps.is_null() ? at.total - WarmupOf(at.spec) : steps.as_int();
  if (length <= 0 && steps.is_null() && at.total <= 0) {
    throw ConfigError(Str("lr_schedule \"", at.spec.type,
                          "\" needs steps, since the length of the training is not known"));
  }
  return length;
}

/// The share of the decay that is done, from 0 to 1.
double Progress(const At& at) {
  const int64_t length = LengthOf(at);
  return length <= 0 ? 1 : std::min(1.0, static_cast<double>(at.t) / static_cast<double>(length));
}

/// Goes from `start` to `end` along half a cosine wave, as `progress` goes from 0 to 1.
double Wave(double start, double end, double progress) {
  return end + (start - end) * (1 + std::cos(std::numbers::pi * progress)) / 2;
}

double Drops(const At& at, int64_t count) {
  return std::pow(at.number("gamma"), static_cast<double>(count));
}

double MultiStep(const At& at) {
  const std::vector<int64_t> milestones = at["milestones"].as_ints();
  return Drops(at, std::ranges::count_if(milestones, [&](int64_t step) { return step <= at.t; }));
}

double Restarts(const At& at) {
  int64_t t = at.t, length = at["T_0"].as_int();
  if (at["T_mult"].as_int() == 1) t %= length;
  for (; t >= length; length *= at["T_mult"].as_int()) t -= length;
  return Wave(1, at.number("final"), static_cast<double>(t) / static_cast<double>(length));
}

double OneCycle(const At& at) {
  struct Phase {
    double end, from, to;
  };
  const auto steps = static_cast<double>(LengthOf(at));
  const double rise = at.number("pct_start") * steps - 1, first = 1 / at.number("div_factor");
  const double last = first / at.number("final_div_factor");
  std::vector<Phase> phases = {{rise, first, 1}, {steps - 1, 1, last}};
  if (at["three_phase"].as_bool()) {
    phases = {{rise, first, 1}, {2 * rise, 1, first}, {steps - 1, first, last}};
  }
  const double t = std::min(static_cast<double>(at.t), steps - 1);
  double start = 0;
  for (const auto& [end, from, to] : phases) {
    if (t <= end) {
      const double progress = end > start ? (t - start) / (end - start) : 1;
      const bool is_wave = at["anneal_strategy"].as_string() == "cos";
      return is_wave ? Wave(from, to, progress) : from + (to - from) * progress;
    }
    start = end;
  }
  return last;
}

double FactorOf(const At& at);

/// The factor of a part of a chain or a sequence, at the part's own step `t` of `total`.
double FactorOfPart(const Value& part, int64_t t, int64_t total, Script* script) {
  LrScheduleSpec spec = {part["type"].as_string(), part["options"], {}};
  if (part["function"].is_function()) spec.function = part["function"].as_function();
  return FactorOf({spec, t, total, script});
}

double Chain(const At& at) {
  double factor = 1;
  for (const Value& part : at["schedules"].as_list()) {
    factor *= FactorOfPart(part, at.t, at.total, at.script);
  }
  return factor;
}

double Sequence(const At& at) {
  const std::vector<int64_t> begins = at["milestones"].as_ints();
  const auto next = std::ranges::upper_bound(begins, at.t);
  const auto place = static_cast<size_t>(next - begins.begin());
  const int64_t begin = place == 0 ? 0 : begins[place - 1];
  const int64_t end = next == begins.end() ? at.total : *next;
  const int64_t total = at.total > 0 ? std::max<int64_t>(end - begin, 1) : at.total;
  return FactorOfPart(at["schedules"].as_list().at(place), at.t - begin, total, at.script);
}

double One(const At&) { return 1; }

using Factor = double (*)(const At&);

constexpr std::pair<const char*, Factor> kFactors[] = {
    {"constant", One},
    {"warmup", One},
    {"function", Function},
    {"plateau", One},
    {"linear", [](const At& at) { return 1 + (at.number("final") - 1) * Progress(at); }},
    {"cosine", [](const At& at) { return Wave(1, at.number("final"), Progress(at)); }},
    {"polynomial", [](const At& at) { return std::pow(1 - Progress(at), at.number("power")); }},
    {"step", [](const At& at) { return Drops(at, at.t / at["every"].as_int()); }},
    {"multi_step", MultiStep},
    {"exponential", [](const At& at) { return Drops(at, at.t); }},
    {"cosine_restarts", Restarts},
    {"one_cycle", OneCycle},
    {"chain", Chain},
    {"sequence", Sequence},
};

double FactorOf(const At& at) {
  const int64_t warmup = WarmupOf(at.spec);
  if (at.t < warmup) return static_cast<double>(at.t + 1) / static_cast<double>(warmup + 1);
  const auto factor =
      std::ranges::find(kFactors, at.spec.type, [](const auto& entry) { return entry.first; });
  STRATA_CHECK(factor != std::end(kFactors)) << at.spec.type;
  return factor->second({at.spec, at.t - warmup, at.total, at.script});
}

}  // namespace

double LrFactor(const LrScheduleSpec& spec, int64_t step, int64_t total_steps, Script* script) {
  return FactorOf({spec, step, total_steps, script});
}

}  // namespace strata
