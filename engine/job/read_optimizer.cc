#include "engine/job/read_optimizer.h"

#include <algorithm>
#include <tuple>

#include "engine/base/text.h"
#include "engine/job/parameter_groups.h"

namespace strata {
namespace {

/// The fields of a parameter group: which parameters it selects, and the options of the optimizer
/// `type`, by name.
FieldTable GroupFields(const std::string& type) {
  FieldTable fields = ParameterGroupFields();
  const FieldTable& options = FindOptimizerType(type).fields;
  fields.insert(fields.end(), options.begin(), options.end());
  std::erase_if(fields, [](const Field& field) { return field.name == "groups"; });
  for (Field& field : fields) field.named_only = true;
  return fields;
}

/// Reads a group. It overrides options of the optimizer `type`; {"adamw", ...} gives the group an
/// optimizer of its own.
ParameterGroup ReadGroup(const JobKeys& keys, const std::string& type, const Value& value) {
  ParameterGroup group;
  Call call = keys.CallFor("a group of the optimizer", value);
  if (!call.positional.empty() && call.positional[0].is_string()) {
    group.type = keys.TypeIn("optimizer", OptimizerTypes(), call.positional[0].as_string()).name;
    call.positional.erase(call.positional.begin());
  }
  // Null entries are dropped, as nil is in Lua: options that a group does not give are the
  // optimizer's.
  std::erase_if(call.named, [](const Value::Entry& entry) { return entry.second.is_null(); });
  const bool is_own = !group.type.empty();
  const FieldTable fields = GroupFields(is_own ? group.type : type);
  group.options = is_own ? Canonicalize(fields, call) : CanonicalizeGiven(fields, call);
  group.layers = ReadSelector(group.options["layers"]);
  if (group.options["parameters"].is_string())
    group.parameters = group.options["parameters"].as_string();
  group.dims = keys.Placed([&] { return ParseDims(group.options["dims"]); });
  for (const char* selector : {"layers", "parameters", "dims"}) group.options.Erase(selector);
  if (group.layers.items.empty() && group.parameters.empty() && group.dims.empty()) {
    keys.Refuse(
        "a group of the optimizer needs layers, parameters or dims, to say what it holds for");
  }
  return group;
}

void CheckSgd(const JobKeys& keys, const Value& options) {
  if (!options["nesterov"].as_bool()) return;
  if (options["momentum"].as_double() > 0 && options["dampening"].as_double() == 0) return;
  keys.Refuse("optimizer sgd: nesterov needs a momentum and no dampening");
}

/// Reads the schedules of a chain or a sequence, and stores each as {type, options, function}.
void ReadParts(const JobKeys& keys, LrScheduleSpec& spec) {
  const Value given = spec.options["schedules"];
  if (!given.is_list() || given.as_list().empty()) {
    keys.Refuse(Str("lr_schedule ", spec.type, ": schedules expects a list of schedules; got ",
                    given.Describe()));
  }
  Value::List parts;
  for (const Value& item : given.as_list()) {
    LrScheduleSpec part = {"function", Value::MakeMap(), {}};
    if (!item.is_function()) {
      std::tie(part.type, part.options) = keys.TypedValue("lr_schedule", LrScheduleTypes(), item);
    }
    if (part.type == "plateau") keys.Refuse("lr_schedule plateau stands alone, not in a chain");
    if (part.options.Has("schedules")) ReadParts(keys, part);
    parts.push_back(Value::MakeMap({{"type", part.type},
                                    {"options", part.options},
                                    {"function", item.is_function() ? item : Value()}}));
  }
  const Value* milestones = spec.options.Find("milestones");
  if (milestones && milestones->as_list().size() + 1 != parts.size()) {
    keys.Refuse(
        Str("lr_schedule sequence: ", Plural(static_cast<int64_t>(parts.size()), "schedule"),
            " need ", parts.size() - 1, " milestones, got ", milestones->as_list().size()));
  }
  spec.options.Set("schedules", std::move(parts));
}

}  // namespace

OptimizerSpec ReadOptimizer(const JobKeys& keys, const std::vector<LayerSpec>& layers) {
  OptimizerSpec spec;
  std::tie(spec.type, spec.options) = keys.TypedTable("optimizer", OptimizerTypes(), "sgd");
  const Value groups = spec.options["groups"];
  spec.options.Erase("groups");
  if (!groups.is_null() && !groups.is_list()) {
    keys.Refuse(Str("optimizer.groups expects a list of groups; got ", groups.Describe()));
  }
  for (const Value& group : groups.is_null() ? Value::List() : groups.as_list()) {
    spec.groups.push_back(ReadGroup(keys, spec.type, group));
  }
  for (int group = -1; group < static_cast<int>(spec.groups.size()); ++group) {
    if (GroupType(spec, group) == "sgd") CheckSgd(keys, GroupOptions(spec, group));
  }
  keys.Placed([&] { CheckParameterGroups(spec, layers); });
  spec.ema = keys["ema"].is_null() ? 0 : keys["ema"].as_double();
  return spec;
}

LrScheduleSpec ReadLrSchedule(const JobKeys& keys) {
  LrScheduleSpec spec;
  const Value& value =
      keys.overridden("lr_schedule") ? keys.override_of("lr_schedule") : keys.script("lr_schedule");
  if (value.is_function()) {
    spec.type = "function";
    spec.options = Value::MakeMap();
    spec.function = value.as_function();
  } else {
    std::tie(spec.type, spec.options) =
        keys.TypedTable("lr_schedule", LrScheduleTypes(), "constant");
  }
  if (spec.options.Has("schedules")) ReadParts(keys, spec);
  if (const Value* steps = spec.options.Find("milestones")) {
    if (!std::ranges::is_sorted(steps->as_ints())) {
      keys.Refuse(Str("lr_schedule ", spec.type, ": milestones ascend; got ", steps->ToJson()));
    }
  }
  return spec;
}

}  // namespace strata
