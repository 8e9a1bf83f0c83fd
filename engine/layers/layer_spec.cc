#include "engine/layers/layer_spec.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

/// A value as PyTorch's repr shows it: lists of integers as tuples.
std::string Repr(const Value& value) {
  if (!value.is_list()) return value.is_null() ? "None" : value.ToLua();
  std::vector<std::string> pieces;
  for (const Value& element : value.as_list()) pieces.push_back(Repr(element));
  return Str("(", Join(pieces, ", "), pieces.size() == 1 ? ",)" : ")");
}

/// The arguments that repr shows: required integers by position, and all others that differ from
/// their defaults by name.
std::vector<std::string> Arguments(const LayerType& type, const Value& args) {
  std::vector<std::string> pieces;
  for (const Field& field : type.fields) {
    if (!args.Has(field.name)) continue;
    const Value& value = args[field.name];
    if (field.required && field.kind == FieldKind::kInt) {
      pieces.push_back(Repr(value));
    } else if (value != field.fallback) {
      pieces.push_back(Str(field.name, "=", Repr(value)));
    }
  }
  return pieces;
}

std::vector<std::string> ScriptArguments(const Value& args) {
  const Call call = CallOf(args);
  std::vector<std::string> pieces;
  for (const Value& value : call.positional) pieces.push_back(Repr(value));
  for (const auto& [name, value] : call.named) pieces.push_back(Str(name, "=", Repr(value)));
  return pieces;
}

Value ValueOf(const std::vector<ParameterSpec>& specs) {
  Value::List list;
  for (const ParameterSpec& spec : specs) {
    Value entry;
    entry.Set("name", spec.name).Set("shape", Value::IntList(spec.shape));
    entry.Set("dtype", DTypeName(spec.dtype)).Set("buffer", spec.buffer);
    list.push_back(std::move(entry));
  }
  return list;
}

Value ValueOf(const LowRankSpec& spec) {
  return Value::MakeMap({{"rank", spec.rank},
                         {"alpha", spec.alpha},
                         {"dropout", spec.dropout},
                         {"weights", Value::List(spec.weights.begin(), spec.weights.end())}});
}

Value ValueOf(const PackedSpec& spec) {
  return Value::MakeMap({{"packing", PackingName(spec.packing)},
                         {"weights", Value::List(spec.weights.begin(), spec.weights.end())}});
}

}  // namespace

std::string LayerSpec::ToString() const {
  if (type == "function") return where.empty() ? "function" : Str("function(", where, ")");
  const LayerType* known = scripted ? nullptr : FindLayerType(type);
  std::vector<std::string> pieces = known ? Arguments(*known, args) : ScriptArguments(args);
  constexpr size_t kMost = 8;
  // Other types with children show the arguments from which they make them.
  if (known && known->holds_layers) {
    for (const LayerSpec& child : children) pieces.push_back(child.ToString());
    if (children.size() > kMost) {
      pieces.resize(kMost);
      pieces.push_back(Str("... ", Plural(static_cast<int64_t>(children.size()), "layer")));
    }
  }
  return Str(type, "(", Join(pieces, ", "), ")");
}

bool LayerSpec::IsFrozen(std::string_view parameter) const {
  return frozen || std::ranges::find(frozen_parameters, parameter) != frozen_parameters.end();
}

bool LowRankSpec::Has(std::string_view weight) const {
  return std::ranges::find(weights, weight) != weights.end();
}

bool PackedSpec::Has(std::string_view weight) const {
  return std::ranges::find(weights, weight) != weights.end();
}

std::string LowRankName(std::string_view weight, char matrix) {
  constexpr std::string_view kWeight = "weight";
  const bool is_own = weight == kWeight || weight.ends_with(".weight");
  if (is_own) weight.remove_suffix(kWeight.size());  // "" or "q_proj."
  return Str(weight, is_own ? "" : ".", "lora_", matrix, ".weight");
}

Value LayerSpec::ToValue() const {
  Value value;
  value.Set("type", type).Set("name", name).Set("args", args);
  if (scripted) {
    value.Set("forward", forward).Set("init", init);
    value.Set("parameters", ValueOf(script_parameters));
  } else if (init.id >= 0) {
    value.Set("init", init);
  }
  if (!children.empty()) {
    Value::List list;
    for (const LayerSpec& child : children) list.push_back(child.ToValue());
    value.Set("layers", std::move(list));
  }
  value.Set("frozen", frozen).Set("tied", tied_key);
  if (!frozen_parameters.empty()) {
    value.Set("frozen_parameters", Value::List(frozen_parameters.begin(), frozen_parameters.end()));
  }
  if (!low_rank.weights.empty()) value.Set("low_rank", ValueOf(low_rank));
  if (!packed.weights.empty()) value.Set("packed", ValueOf(packed));
  if (!tied_key.empty()) {
    value.Set("tied_weights", Value::List(tied_weights.begin(), tied_weights.end()));
    value.Set("tied_forward", tied_forward);
  }
  return value;
}

bool HasScripted(const LayerSpec& spec) {
  return spec.has_scripted_forward() || std::ranges::any_of(spec.children, HasScripted);
}

}  // namespace strata
