// The table of optimizers: options with PyTorch's names, order and defaults, and the names of the
// state tensors of each. engine/runtime/update/update_rules.cc has their update rules.
#include <algorithm>
#include <iterator>

#include "engine/base/check.h"
#include "engine/job/job_fields.h"

namespace strata {
namespace {

using Names = std::vector<std::string>;

Field LearningRate(double fallback = 1e-3) {
  return Field::Number("lr", "learning rate").AtLeast(0).Default(fallback);
}

Field Momentum(double fallback = 0) {
  return Field::Number("momentum", "share of the last step that goes on")
      .AtLeast(0)
      .Default(fallback);
}

/// The classic weight decay, an L2 penalty: it is added to the gradient.
Field WeightDecay() {
  return Field::Number("weight_decay", "share of the parameter added to its gradient")
      .AtLeast(0)
      .Default(0.0);
}

/// Decoupled weight decay (Loshchilov and Hutter, arXiv:1711.05101): it is subtracted from the
/// parameter, not added to the gradient.
Field OwnWeightDecay(double fallback) {
  return Field::Number("weight_decay", "share of the parameter taken off at each step, times lr")
      .AtLeast(0)
      .Default(fallback);
}

Field Decoupled() {
  return Field::Bool("decoupled_weight_decay", "takes weight_decay off the parameter, as adamw")
      .Default(false);
}

Field Betas(double first = 0.9, double second = 0.999) {
  return Field::Numbers("betas", 2, "shares of the old averages of gradient and square")
      .AtLeast(0)
      .Below(1)
      .Default(Value::List{first, second});
}

Field Eps(double fallback = 1e-8) {
  return Field::Number("eps", "added to the divisor").AtLeast(0).Default(fallback);
}

Field Maximize() {
  return Field::Bool("maximize", "goes up the gradient instead of down").Default(false);
}

Field AmsGrad() {
  return Field::Bool("amsgrad", "divides by the largest average so far").Default(false);
}

/// Arguments of PyTorch that control how the update is executed (foreach, fused, ...).
Field HowItRuns(const char* name) {
  return Field::Refused(name, "the engine runs one update for each flat buffer");
}

FieldTable With(FieldTable fields, FieldTable named) {
  named.push_back(
      Field::Any("groups", "{{layers=, parameters=REGEX, dims=, option=value ...}, ...}")
          .Optional());
  for (Field& field : named) fields.push_back(field.NamedOnly());
  return fields;
}

FieldTable SgdFields() {
  return With(
      {LearningRate(), Momentum(),
       Field::Number("dampening", "share of the gradient that momentum leaves out").Default(0.0),
       WeightDecay(), Field::Bool("nesterov", "looks ahead by the momentum").Default(false)},
      {Maximize(), HowItRuns("foreach"), HowItRuns("differentiable"), HowItRuns("fused")});
}

FieldTable AdamFields(const Field& weight_decay, FieldTable more = {}) {
  FieldTable named = {Maximize(), HowItRuns("foreach"), HowItRuns("capturable"),
                      HowItRuns("differentiable"), HowItRuns("fused")};
  std::ranges::move(more, std::back_inserter(named));
  return With({LearningRate(), Betas(), Eps(), weight_decay, AmsGrad()}, named);
}

FieldTable RmsPropFields() {
  return With(
      {LearningRate(0.01),
       Field::Number("alpha", "share of the old average of squares").AtLeast(0).Default(0.99),
       Eps(), WeightDecay(), Momentum(),
       Field::Bool("centered", "divides by the variance, not the square").Default(false),
       HowItRuns("capturable"), HowItRuns("foreach"), Maximize(), HowItRuns("differentiable")},
      {});
}

FieldTable AdagradFields() {
  return With(
      {LearningRate(0.01),
       Field::Number("lr_decay", "of lr, which is divided by 1 + lr_decay steps")
           .AtLeast(0)
           .Default(0.0),
       WeightDecay(),
       Field::Number("initial_accumulator_value", "of the sum of squares").AtLeast(0).Default(0.0),
       Eps(1e-10), HowItRuns("foreach")},
      {Maximize(), HowItRuns("differentiable"), HowItRuns("fused")});
}

FieldTable AdadeltaFields() {
  return With({LearningRate(1.0),
               Field::Number("rho", "share of the old averages").AtLeast(0).AtMost(1).Default(0.9),
               Eps(1e-6), WeightDecay(), HowItRuns("foreach")},
              {HowItRuns("capturable"), Maximize(), HowItRuns("differentiable")});
}

FieldTable NAdamFields() {
  return With(
      {LearningRate(2e-3), Betas(), Eps(), WeightDecay(),
       Field::Number("momentum_decay", "how fast the momentum comes to betas[1]")
           .AtLeast(0)
           .Default(4e-3),
       Decoupled()},
      {HowItRuns("foreach"), Maximize(), HowItRuns("capturable"), HowItRuns("differentiable")});
}

FieldTable RAdamFields() {
  return With(
      {LearningRate(), Betas(), Eps(), WeightDecay(), Decoupled()},
      {HowItRuns("foreach"), Maximize(), HowItRuns("capturable"), HowItRuns("differentiable")});
}

FieldTable AdamaxFields() {
  return With({LearningRate(2e-3), Betas(), Eps(), WeightDecay(), HowItRuns("foreach")},
              {Maximize(), HowItRuns("differentiable"), HowItRuns("capturable")});
}

/// PyTorch does not have Lion; names and defaults are those of the paper's authors
/// (arXiv:2302.06675).
FieldTable LionFields() {
  return With({LearningRate(1e-4), Betas(0.9, 0.99), OwnWeightDecay(0)}, {Maximize()});
}

FieldTable AdafactorFields() {
  return With({LearningRate(0.01),
               Field::Number("beta2_decay", "exponent of the step in the average's share of new")
                   .AtMost(0)
                   .Default(-0.8),
               Field::Numbers("eps", 2, "least square (none = the dtype's), least scale of a step")
                   .AtLeast(0)
                   .ElementsOrNone()
                   .Default(Value::List{Value(), 1e-3}),
               Field::Number("d", "largest root mean square of an update").AtLeast(1).Default(1.0),
               OwnWeightDecay(0)},
              {HowItRuns("foreach"), Maximize()});
}

FieldTable MuonFields() {
  return With({LearningRate(), OwnWeightDecay(0.1), Momentum(0.95),
               Field::Bool("nesterov", "looks ahead by the momentum").Default(true),
               Field::Numbers("ns_coefficients", 3, "of the Newton-Schulz iteration's polynomial")
                   .Default(Value::List{3.4445, -4.775, 2.0315}),
               Eps(1e-7),
               Field::Int("ns_steps", "Newton-Schulz iterations").AtLeast(1).AtMost(99).Default(5),
               Field::Choice("adjust_lr_fn", {"original", "match_rms_adamw"},
                             "how lr goes with the matrix's shape; none = original")
                   .Optional()},
              {});
}

Names SgdMoments(const Value& options) {
  return options["momentum"].as_double() == 0 ? Names{} : Names{"momentum_buffer"};
}

Names AdamMoments(const Value& options) {
  Names names = {"exp_avg", "exp_avg_sq"};
  if (options.Has("amsgrad") && options["amsgrad"].as_bool()) names.push_back("max_exp_avg_sq");
  return names;
}

Names RmsPropMoments(const Value& options) {
  Names names = {"square_avg"};
  if (options["momentum"].as_double() > 0) names.push_back("momentum_buffer");
  if (options["centered"].as_bool()) names.push_back("grad_avg");
  return names;
}

template <size_t size>
struct Text {
  constexpr Text(const char (&text)[size]) { std::copy_n(text, size, characters); }  // NOLINT
  char characters[size];
};

/// State names that do not depend on the options.
template <Text... names>
Names Always(const Value&) {
  return {names.characters...};
}

}  // namespace

const std::vector<OptionTable>& OptimizerTypes() {
  using enum OptionTable::Sees;
  static const std::vector<OptionTable> types = {
      {"sgd", SgdFields(), SgdMoments},
      {"adam", AdamFields(WeightDecay(), {Decoupled()}), AdamMoments},
      {"adamw", AdamFields(OwnWeightDecay(0.01)), AdamMoments},
      {"rmsprop", RmsPropFields(), RmsPropMoments},
      {"adagrad", AdagradFields(), Always<"sum">},
      {"adadelta", AdadeltaFields(), Always<"square_avg", "acc_delta">},
      {"nadam", NAdamFields(), Always<"exp_avg", "exp_avg_sq">},
      {"radam", RAdamFields(), Always<"exp_avg", "exp_avg_sq">},
      {"adamax", AdamaxFields(), Always<"exp_avg", "exp_inf">},
      {"lion", LionFields(), Always<"exp_avg">},
      {"adafactor", AdafactorFields(), Always<>, kParameters},
      {"muon", MuonFields(), Always<"momentum_buffer">, kMatrices},
  };
  return types;
}

const OptionTable& FindOptimizerType(const std::string& name) {
  const auto type = std::ranges::find(OptimizerTypes(), name, &OptionTable::name);
  STRATA_CHECK(type != OptimizerTypes().end()) << name;
  return *type;
}

}  // namespace strata
