#include "engine/runtime/step/nonfinite.h"

#include <cmath>
#include <utility>

#include "engine/base/text.h"
#include "engine/base/value.h"

namespace strata {

std::string NumberText(double value) {
  if (std::isnan(value)) return "nan";
  return Str(value);
}

std::string ToText(const std::optional<Finding>& finding, bool has_finite_weights) {
  Value value = Value::MakeMap({{"has_finite_weights", has_finite_weights}});
  if (finding) {
    value.Set("is_gradient", finding->is_gradient).Set("micro_batch", finding->micro_batch);
    value.Set("place", finding->place).Set("text", finding->text);
  }
  return value.ToJson();
}

NonFinite FirstOf(const std::vector<std::string>& texts) {
  NonFinite result = {
      "when it runs again all values are finite; either a sum over replicas is too large, or the "
      "data or a function of the script gives other values each time",
      true};
  std::optional<Finding> first;
  for (const std::string& text : texts) {
    const Value value = Value::FromJson(text);
    result.has_finite_weights &= value["has_finite_weights"].as_bool();
    if (!value.Has("text")) continue;
    Finding finding = {value["is_gradient"].as_bool(), value["micro_batch"].as_int(),
                       value["place"].as_int(), value["text"].as_string()};
    if (!first || finding < *first) first = std::move(finding);
  }
  if (first) result.report = first->text;
  return result;
}

}  // namespace strata
