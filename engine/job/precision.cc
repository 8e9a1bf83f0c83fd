#include "engine/job/precision.h"

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr const char* kFloat = "float32";

/// The dtype of a short name (bf16, fp16), as DeepSpeed uses them; float32 for all other names.
DType TypeOf(const std::string& name) {
  if (name == "bf16") return DType::kBFloat16;
  if (name == "fp16") return DType::kFloat16;
  return DType::kFloat32;
}

Field OneOf(const char* name, std::vector<std::string> choices, const char* help) {
  return Field::Choice(name, std::move(choices), help).NamedOnly();
}

FieldTable HalfFields(const std::string& type, std::vector<std::string> params) {
  return {
      OneOf("params", params, "type of parameters, their gradients and moments").Default(kFloat),
      OneOf("gradients", params, "type in which gradients are added up; none = that of params")
          .Optional(),
      OneOf("messages", {type}, "type between stages, that of the layers").Default(type),
      OneOf("reduce", {kFloat, type}, "type in which replicas exchange gradients").Default(kFloat),
  };
}

FieldTable Fp16Fields() {
  FieldTable fields = HalfFields("fp16", {kFloat});
  const auto number = [](const char* name, const char* help) {
    return Field::Number(name, help).NamedOnly();
  };
  const auto whole = [](const char* name, const char* help) {
    return Field::Int(name, help).NamedOnly().AtLeast(1);
  };
  fields.insert(
      fields.end(),
      {number("scale", "a fixed scale of the loss; none = dynamic").Above(0).Optional(),
       number("initial_scale", "of a dynamic scale").Above(0).Default(65536.0),
       number("growth_factor", "of the scale after growth_interval good steps")
           .AtLeast(1)
           .Default(2.0),
       number("backoff_factor", "of the scale after an overflow").Above(0).Below(1).Default(0.5),
       whole("growth_interval", "steps").Default(2000),
       whole("hysteresis", "overflows until the scale goes back").Default(1),
       number("min_scale", "the scale goes no lower").Above(0).Default(1.0)});
  return fields;
}

LossScaleSpec ReadScale(const Value& options) {
  if (!options["scale"].is_null()) return {.initial = options["scale"].as_double()};
  return {.initial = options["initial_scale"].as_double(),
          .dynamic = true,
          .growth = options["growth_factor"].as_double(),
          .backoff = options["backoff_factor"].as_double(),
          .interval = options["growth_interval"].as_int(),
          .hysteresis = options["hysteresis"].as_int(),
          .least = options["min_scale"].as_double()};
}

}  // namespace

const std::vector<OptionTable>& PrecisionTypes() {
  static const std::vector<OptionTable> types = {{kFloat, {}},
                                                 {"tf32", {}},
                                                 {"bf16", HalfFields("bf16", {kFloat, "bf16"})},
                                                 {"fp16", Fp16Fields()}};
  return types;
}

Precision ReadPrecision(const std::string& type, const Value& options) {
  Precision precision = {.name = type, .compute = TypeOf(type)};
  if (!precision.is_half()) return precision;
  const std::string& params = options["params"].as_string();
  precision.params = TypeOf(params);
  precision.reduce = TypeOf(options["reduce"].as_string());
  if (const Value& gradients = options["gradients"];
      !gradients.is_null() && gradients != Value(params)) {
    throw ConfigError(
        Str("precision: the optimizer takes gradients in the type of params, which is ", params,
            "; got gradients = ", gradients.Describe()));
  }
  if (options.Has("scale")) precision.loss_scale = ReadScale(options);
  return precision;
}

Value PrecisionToValue(const Precision& precision) {
  const LossScaleSpec& scale = precision.loss_scale;
  return Value::MakeMap(
      {{"name", precision.name},
       {"params", DTypeName(precision.params)},
       {"reduce", DTypeName(precision.reduce)},
       {"loss_scale", Value::List{scale.dynamic, scale.initial, scale.growth, scale.backoff,
                                  scale.interval, scale.hysteresis, scale.least}}});
}

}  // namespace strata
