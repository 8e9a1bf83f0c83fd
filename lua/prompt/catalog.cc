// Makes the catalog: field tables become values, and a walk over the library collects its functions
// and the types of their results.
#include "lua/prompt/catalog.h"

#include <algorithm>
#include <map>

#include "engine/base/text.h"
#include "engine/job/data_source.h"
#include "engine/job/job_fields.h"
#include "engine/layers/layer_types.h"
#include "engine/plan/cut/cut.h"
#include "engine/schedule/generators/generators.h"
#include "lua/core/binding.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/core/object.h"
#include "lua/library/key_help.h"
#include "lua/library/layer_object.h"

namespace strata::lua {
namespace {

Value Texts(const std::vector<std::string>& texts) {
  return Value::List(texts.begin(), texts.end());
}

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

const char* KindName(FieldKind kind) {
  switch (kind) {
    case FieldKind::kBool:
      return "boolean";
    case FieldKind::kInt:
      return "integer";
    case FieldKind::kNumber:
      return "number";
    case FieldKind::kString:
    case FieldKind::kDType:
      return "string";
    case FieldKind::kChoice:
      return "choice";
    case FieldKind::kSize:
    case FieldKind::kShape:
      return "sizes";
    case FieldKind::kNumbers:
      return "numbers";
    case FieldKind::kFunction:
      return "function";
    case FieldKind::kTable:
      return "table";
    case FieldKind::kAny:
      return "any";
  }
  return "any";
}

std::string DefaultOf(const Field& field) {
  if (field.required) return "required";
  return field.fallback.is_null() ? "none" : field.fallback.ToLua();
}

Value FieldValue(const Field& field) {
  return Value::MakeMap({{"name", field.name},
                         {"kind", KindName(field.kind)},
                         {"takes", field.Expected()},
                         {"default", DefaultOf(field)},
                         {"required", field.required},
                         {"help", field.help},
                         {"choices", Texts(ChoicesOf(field))}});
}

Value KeyValue(const Field& key) {
  Value value = FieldValue(key);
  Value::List tables;
  for (const OptionTable& table : TablesOf(key)) {
    tables.push_back(Value::MakeMap({{"name", table.name}, {"fields", FieldsValue(table.fields)}}));
  }
  value.Set("tables", std::move(tables));
  return value;
}

Value Keys() {
  Value::List keys;
  for (const Field& key : JobFields()) {
    if (key.refused.empty() && key.comes_later.empty()) keys.push_back(KeyValue(key));
  }
  return keys;
}

Value Layers() {
  Value::List layers;
  for (const LayerType& type : LayerTypes()) {
    layers.push_back(Value::MakeMap({{"name", type.library + "." + type.name},
                                     {"call", FirstLine(LayerHelp(type))},
                                     {"help", type.help},
                                     {"shapes", type.shapes},
                                     {"loss", type.is_loss},
                                     {"fields", FieldsValue(type.fields)}}));
  }
  std::ranges::stable_partition(layers,
                                [](const Value& layer) { return !layer["loss"].as_bool(); });
  return layers;
}

Value Sources(const std::vector<DataSourceType>& types, const std::string& prefix) {
  Value::List sources;
  for (const DataSourceType& type : types) {
    const bool is_dataset = type.name == "dataset";
    sources.push_back(Value::MakeMap({{"name", (is_dataset ? "strata." : prefix) + type.name},
                                      {"help", type.help},
                                      {"fields", FieldsValue(type.fields)}}));
  }
  return sources;
}

Value Metrics() {
  Value::List metrics;
  for (const auto& [name, more_is_better] : MetricTypes()) {
    metrics.push_back(Value::MakeMap({{"name", name}, {"more_is_better", more_is_better}}));
  }
  return metrics;
}

/// Walks over the library's tables, and over the types that its functions return.
class Walk {
 public:
  explicit Walk(lua_State* L) : L_(L) {}

  /// Adds the functions of the table at the top of the stack, and of the tables in it.
  void Library(const std::string& name) {
    const int table = lua_gettop(L_);
    luaL_checkstack(L_, 20, "the library is too deep");
    for (lua_pushnil(L_); lua_next(L_, table) != 0; lua_pop(L_, 1)) {
      if (lua_type(L_, -2) != LUA_TSTRING) continue;
      const std::string member = Str(name, ".", TextAt(L_, -2));
      if (lua_istable(L_, -1) && member != "strata.F") Library(member);
      if (lua_isfunction(L_, -1)) functions_[member] = Function(member, NotedHelp(L_, -1));
    }
  }

  /// Pops the type at the top of the stack, adds it and the types that its members return, and
  /// returns its name.
  std::string Type() {
    const int type = lua_gettop(L_);
    std::string name = ObjectTypeName(L_, type);
    if (!types_.contains(name)) {
      types_[name] = {};  // a member may return this type
      types_[name] = Value::MakeMap({{"name", name},
                                     {"help", ObjectHelp(L_, type)},
                                     {"methods", Members(type, name, ":", PushTypeMethod)},
                                     {"properties", Members(type, name, ".", PushTypeProperty)}});
    }
    lua_settop(L_, type - 1);
    return name;
  }

  Value functions() const { return Values(functions_); }
  Value types() const { return Values(types_); }

 private:
  /// The entry for the function at the top of the stack.
  Value Function(const std::string& name, const std::string& help) {
    const FieldTable* fields = NotedFields(L_, -1);
    const bool gives = PushResult(L_, -1);
    const std::string type = gives ? Type() : "";
    return Value::MakeMap({{"name", name},
                           {"help", help},
                           {"fields", fields ? FieldsValue(*fields) : Value(Value::List())},
                           {"gives", type}});
  }

  Value Members(int type, const std::string& name, const char* dot,
                bool (*push)(lua_State*, int, const std::string&)) {
    Value::List members;
    for (const std::string& member : ObjectMembers(L_, type)) {
      if (!push(L_, type, member)) continue;
      members.push_back(Function(Str(name, dot, member), NotedHelp(L_, -1)));
      lua_pop(L_, 1);
    }
    return members;
  }

  static Value Values(const std::map<std::string, Value>& entries) {
    Value::List values;
    for (const auto& [name, value] : entries) values.push_back(value);
    return values;
  }

  lua_State* L_;
  std::map<std::string, Value> functions_;
  std::map<std::string, Value> types_;
};

}  // namespace

Value FieldsValue(const FieldTable& fields) {
  Value::List values;
  for (const Field& field : fields) {
    if (field.refused.empty() && field.comes_later.empty()) values.push_back(FieldValue(field));
  }
  return values;
}

Value Catalog(State& state) {
  Value catalog = Value::MakeMap({{"keys", Keys()},
                                  {"layers", Layers()},
                                  {"sources", Sources(DataSourceTypes(), "strata.data.")},
                                  {"steps", Sources(DataStepTypes(), "d:")},
                                  {"schedules", Texts(schedule::GeneratorNames())},
                                  {"partitions", Texts(partition::MethodNames())},
                                  {"metrics", Metrics()}});
  Session(state).Run([&](lua_State* L) {
    Walk walk(L);
    lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
    walk.Library("strata");
    GivenType<LayerSpec>(L);
    walk.Type();
    catalog.Set("functions", walk.functions());
    catalog.Set("types", walk.types());
  });
  return catalog;
}

}  // namespace strata::lua
