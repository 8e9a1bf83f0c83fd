// strata.json: converts between JSON text and Lua values.
//
// An empty Lua table could be a list or an object. A table becomes an object if it has names or is
// marked as one. decode() marks the objects it makes, and strata.json.object() marks a table. The
// marked tables are the keys of a weak table.

#include <cmath>

#include "engine/base/text.h"
#include "engine/base/value_json.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/library/library.h"

namespace strata::lua {

/// The type of strata.json.null. In a job, an option or an argument it counts as nil.
struct JsonNull {};

template <>
struct TypeOf<JsonNull> {
  static const ObjectType& Get();
};

namespace {

constexpr size_t kMaxDepth = 1000;

// Registry keys of strata.json.null and of the table of marked objects.
constexpr char kNull[] = "strata.json.null";
constexpr char kObjects[] = "strata.json.objects";

/// Marks the table at the top of the stack as an object.
void MarkObject(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, kObjects);
  lua_pushvalue(L, -2);
  lua_pushboolean(L, true);
  lua_rawset(L, -3);
  lua_pop(L, 1);
}

bool IsMarked(lua_State* L, int table) {
  lua_getfield(L, LUA_REGISTRYINDEX, kObjects);
  lua_pushvalue(L, table);
  lua_rawget(L, -2);
  const bool marked = lua_toboolean(L, -1) != 0;
  lua_pop(L, 2);
  return marked;
}

// ---- Reading

void PushJson(lua_State* L, const Value& value) {
  luaL_checkstack(L, 4, "JSON is nested too deeply");
  if (value.is_null()) {
    lua_getfield(L, LUA_REGISTRYINDEX, kNull);
  } else if (value.is_list()) {
    lua_createtable(L, static_cast<int>(value.as_list().size()), 0);
    int position = 0;
    for (const Value& element : value.as_list()) {
      PushJson(L, element);
      lua_rawseti(L, -2, ++position);
    }
  } else if (value.is_map()) {
    lua_createtable(L, 0, static_cast<int>(value.as_map().size()));
    for (const auto& [key, entry] : value.as_map()) {
      PushText(L, key);
      PushJson(L, entry);
      lua_rawset(L, -3);
    }
    MarkObject(L);
  } else {
    PushValue(L, value);
  }
}

/// strata.json.decode(text)
Pushed Decode(lua_State* L, const std::string& text) {
  PushJson(L, ParseJson(text, {.max_depth = kMaxDepth, .exact_in_doubles = true}));
  return {};
}

// ---- Writing

/// Converts a Lua value to data for JSON; refuses values that decoding would not give back.
class JsonData {
 public:
  explicit JsonData(lua_State* L) : L_(L), core_(State::Core::Of(L)) {}

  /// Converts the value at the top of the stack, and pops it.
  Value Take() {
    Count();
    Value value = Make();
    lua_pop(L_, 1);
    return value;
  }

 private:
  Value Make() {
    switch (lua_type(L_, -1)) {
      case LUA_TNUMBER:
        return Number(lua_tonumber(L_, -1));
      case LUA_TSTRING:
        return Text(TextAt(L_, -1));
      case LUA_TTABLE:
        return Table();
      case LUA_TUSERDATA:
        return Object();
      default:
        return ToValue(L_, -1, Path());
    }
  }

  /// Counts a value. Tables that contain a table twice, level by level, are small in Lua and huge
  /// as text, so the count is limited.
  void Count() {
    const bool fits = ++values_ < core_.limits.memory_limit() / sizeof(Value);
    if (!fits) throw std::bad_alloc();
    if (values_ % 1024 == 0) core_.limits.Poll();
  }

  Value Number(double number) const {
    if (std::isfinite(number)) return NumberValue(number);
    Refuse(Str("JSON has no number for ", FormatDouble(number)));
  }

  std::string Text(std::string_view text) const {
    const std::string trouble = Utf8Trouble(text);
    if (trouble.empty()) return std::string(text);
    Refuse(Str("JSON holds text in UTF-8, here is an ", trouble));
  }

  Value Object() {
    if (ObjectAt<JsonNull>(L_, -1)) return {};
    if (!PushObjectData(L_, -1)) Refuse(Str("JSON has no form for ", Describe(L_, -1)));
    return Take();
  }

  Value Table() {
    if (path_.size() > kMaxDepth) Refuse("tables are nested too deeply, or one holds itself");
    luaL_checkstack(L_, 8, "tables are nested too deeply");
    const int table = lua_gettop(L_);
    const TableShape shape = ShapeOf(L_, table);
    const bool is_object = !shape.names.empty() || IsMarked(L_, table);
    if (!is_object) return List(table, shape.positions);
    if (shape.positions == 0) return Map(table, shape.names);
    Refuse(Str("a table with ", shape.names.empty() ? "the mark of an object" : "names",
               " has positions too, which are no keys of JSON"));
  }

  Value List(int table, int size) {
    Value::List list;
    for (int i = 1; i <= size; ++i) {
      lua_rawgeti(L_, table, i);
      list.push_back(Inside(Str("[", i, "]")));
    }
    return list;
  }

  Value Map(int table, const std::vector<std::string>& names) {
    Value::Map map;
    for (const std::string& name : names) {
      PushText(L_, name);
      lua_rawget(L_, table);
      map.emplace_back(Text(name), Inside("." + name));
    }
    return Value::MakeMap(std::move(map));
  }

  Value Inside(std::string step) {
    path_.push_back(std::move(step));
    Value value = Take();
    path_.pop_back();
    return value;
  }

  std::string Path() const { return "the value" + Join(path_, ""); }

  [[noreturn]] void Refuse(const std::string& why) const {
    throw ConfigError(Str(Path(), ": ", why));
  }

  lua_State* L_;
  State::Core& core_;
  size_t values_ = 0;
  std::vector<std::string> path_;
};

/// strata.json.encode(value [, indent])
std::string Encode(lua_State* L) {
  if (lua_isnone(L, 1)) ThrowExpected(L, 1, "a value");
  const int indent = lua_isnoneornil(L, 2) ? -1 : static_cast<int>(IntArgument(L, 2, "an indent"));
  if (indent > 16) throw ConfigError("an indent is at most 16");
  lua_pushvalue(L, 1);
  return JsonData(L).Take().ToJson(indent);
}

/// strata.json.object(table)
Pushed MakeObject(lua_State* L) {
  const bool fits = lua_istable(L, 1) && ShapeOf(L, 1).positions == 0;
  if (!fits) ThrowExpected(L, 1, "a table with names, or an empty one");
  lua_settop(L, 1);
  MarkObject(L);
  return {};
}

/// Pushes a table with weak keys.
void PushWeakKeys(lua_State* L) {
  lua_newtable(L);
  lua_newtable(L);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
}

}  // namespace

const ObjectType& TypeOf<JsonNull>::Get() {
  static const ObjectType type{
      .name = "JSON null",
      .metamethods = {{"__tostring", Function<[](const JsonNull&) { return "null"; }>}},
      .to_data = Function<[](const JsonNull&) { return Value(); }>,
      .help = "strata.json.null: what null in JSON text is; it is true in an `if`"};
  return type;
}

void AddJson(lua_State* L) {
  PushWeakKeys(L);
  lua_setfield(L, LUA_REGISTRYINDEX, kObjects);
  lua_newtable(L);
  const NamedFunction json[] = {
      {"decode", FunctionOf<1, Decode, "JSON text">,
       "strata.json.decode(text): the value that JSON text says"},
      {"encode", FunctionOf<2, Encode>,
       "strata.json.encode(value [, indent]): the value as JSON text, which decode gives again"},
      {"object", FunctionOf<1, MakeObject>,
       "strata.json.object(table): the table, which JSON shall call {} when it is empty, not []"}};
  SetFunctions(L, json);
  Push(L, JsonNull());
  lua_pushvalue(L, -1);
  lua_setfield(L, LUA_REGISTRYINDEX, kNull);
  lua_setfield(L, -2, "null");
  NoteHelp(L, -1, "strata.json: JSON text and values");
  lua_setfield(L, -2, "json");
}

}  // namespace strata::lua
