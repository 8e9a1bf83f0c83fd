// Conversion between Lua values and Value.
#include "lua/core/convert.h"

#include <algorithm>
#include <cmath>
#include <regex>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/core.h"
#include "lua/core/object.h"

namespace strata::lua {
namespace {

constexpr double kExact = 9007199254740992;  // 2^53: beyond it a double skips integers
constexpr int kMaxDepth = 100;
constexpr int kMaxHoles = 64;
constexpr size_t kMaxLine = 400;  // std::regex recurses for every character

constexpr char kWatched[] = "strata.watched";  // a field of the metatables that WatchData() sets

// The registry's table of functions: id -> function and function -> id.
constexpr char kFunctions[] = "strata.functions";

int Absolute(lua_State* L, int index) {
  return index > 0 || index <= LUA_REGISTRYINDEX ? index : lua_gettop(L) + 1 + index;
}

std::string Inside(std::string_view path, std::string_view name) { return Str(path, ".", name); }

/// The limit on converted values. 30 lines of `t = {t, t}` make a billion values in thirty tables,
/// so Lua's own limit of memory does not stop them.
constexpr int64_t kMostValues = 10'000'000;

/// The nesting depth of a value, and the number of values converted so far.
struct Walk {
  int depth;
  int64_t* values;
  Walk Below() const { return {depth + 1, values}; }
};

Value::List ListValue(lua_State* L, int table, int size, const std::string& path, Walk walk);
Value AnyValue(lua_State* L, int index, const std::string& path, Walk walk);

Value MapValue(lua_State* L, int table, const TableShape& shape, const std::string& path,
               Walk walk) {
  Value map = Value::MakeMap();
  for (int i = 1; i <= shape.positions; ++i) {
    lua_rawgeti(L, table, i);
    if (!lua_isnil(L, -1)) map.Set(Str(i), AnyValue(L, -1, Inside(path, Str(i)), walk));
    lua_pop(L, 1);
  }
  for (const std::string& name : shape.names) {
    PushText(L, name);
    lua_rawget(L, table);
    map.Set(name, AnyValue(L, -1, Inside(path, name), walk));
    lua_pop(L, 1);
  }
  return map;
}

Value TableValue(lua_State* L, int table, const std::string& path, Walk walk) {
  if (walk.depth > kMaxDepth) {
    throw ConfigError(Str(path, ": tables are nested too deeply, or one holds itself"));
  }
  luaL_checkstack(L, 8, "tables are nested too deeply");
  const TableShape shape = ShapeOf(L, table);
  if (!shape.names.empty()) return MapValue(L, table, shape, path, walk.Below());
  return ListValue(L, table, shape.positions, path, walk.Below());
}

Value::List ListValue(lua_State* L, int table, int size, const std::string& path, Walk walk) {
  Value::List list;
  list.reserve(size);
  for (int i = 1; i <= size; ++i) {
    lua_rawgeti(L, table, i);
    list.push_back(AnyValue(L, -1, path, walk));
    lua_pop(L, 1);
  }
  return list;
}

Value ObjectValue(lua_State* L, int index, const std::string& path, Walk walk) {
  if (!PushObjectData(L, index)) {
    throw ConfigError(Str(path,
                          ": expected text, a number, true, false, a function or a table; got ",
                          Describe(L, index)));
  }
  Value value = AnyValue(L, -1, path, walk.Below());
  lua_pop(L, 1);
  return value;
}

Value AnyValue(lua_State* L, int index, const std::string& path, Walk walk) {
  index = Absolute(L, index);
  if (++*walk.values > kMostValues) {
    throw ConfigError(Str(path, ": more than ", kMostValues,
                          " values; a table that stands in many places counts in each"));
  }
  switch (lua_type(L, index)) {
    case LUA_TNIL:
    case LUA_TNONE:
      return {};
    case LUA_TBOOLEAN:
      return lua_toboolean(L, index) != 0;
    case LUA_TNUMBER:
      return NumberValue(lua_tonumber(L, index));
    case LUA_TSTRING:
      return TextAt(L, index);
    case LUA_TFUNCTION:
      return ToFunctionRef(L, index);
    case LUA_TTABLE:
      return TableValue(L, index, path, walk);
    default:
      return ObjectValue(L, index, path, walk);
  }
}

/// Pushes the registry's table of functions and creates it if it is missing.
void PushFunctions(lua_State* L) { luaL_newmetatable(L, kFunctions); }

int FunctionId(lua_State* L, int function) {
  PushFunctions(L);
  lua_pushvalue(L, function);
  lua_rawget(L, -2);
  int id = static_cast<int>(lua_tointeger(L, -1));
  lua_pop(L, 1);
  if (id == 0) {
    id = static_cast<int>(lua_objlen(L, -1)) + 1;
    lua_pushvalue(L, function);
    lua_rawseti(L, -2, id);
    lua_pushvalue(L, function);
    lua_pushinteger(L, id);
    lua_rawset(L, -3);
  }
  lua_pop(L, 1);
  return id;
}

lua_Debug FunctionInfo(lua_State* L, int function) {
  lua_Debug info{};
  lua_pushvalue(L, function);
  lua_getinfo(L, ">S", &info);
  return info;
}

/// The lines that define a Lua function; "" for one that was not loaded from text.
std::string FunctionSource(lua_State* L, const lua_Debug& info) {
  const auto& chunks = State::Core::Of(L).chunks;
  const auto chunk = chunks.find(info.source + (info.source[0] == '@' ? 1 : 0));
  if (chunk == chunks.end()) return "";
  const std::vector<std::string> lines = Split(chunk->second.source, '\n');
  std::string text;
  for (int i = info.linedefined; i <= info.lastlinedefined; ++i) {
    if (i >= 1 && i <= static_cast<int>(lines.size())) text += lines[i - 1] + "\n";
  }
  return text;
}

/// The numbers, texts and booleans among a function's upvalues, as text.
std::string CaughtValues(lua_State* L, int function) {
  std::string text;
  for (int i = 1; const char* name = lua_getupvalue(L, function, i); ++i) {
    if (!lua_istable(L, -1) && (lua_isboolean(L, -1) || lua_isnumber(L, -1) || lua_isstring(L, -1)))
      text += Str(name, "=", ToValue(L, -1, name).ToLua(), ";");
    lua_pop(L, 1);
  }
  return text;
}

/// Pushes a map's name as a table key. A name such as "1" stands for a position, so it becomes a
/// number.
void PushName(lua_State* L, const std::string& name) {
  const bool digits = !name.empty() && name.size() < 9 && name[0] != '0' &&
                      name.find_first_not_of("0123456789") == std::string::npos;
  if (digits) {
    lua_pushinteger(L, std::stoi(name));
  } else {
    PushText(L, name);
  }
}

/// True for a key of a list, and for a position in a table with names.
bool IsPosition(lua_State* L, int index) {
  if (lua_type(L, index) != LUA_TNUMBER) return false;
  const double key = lua_tonumber(L, index);
  return key >= 1 && key <= 1e8 && key == std::floor(key);
}

}  // namespace

Value NumberValue(double number) {
  const bool whole = number == std::floor(number) && std::abs(number) <= kExact;
  if (whole && !(number == 0 && std::signbit(number))) return static_cast<int64_t>(number);
  return number;
}

Value ToValue(lua_State* L, int index, std::string_view what) {
  int64_t values = 0;
  return AnyValue(L, index, std::string(what), {0, &values});
}

void PushValue(lua_State* L, const Value& value) {
  luaL_checkstack(L, 4, "tables are nested too deeply");
  switch (value.kind()) {
    case Value::Kind::kNull:
      return lua_pushnil(L);
    case Value::Kind::kBool:
      return lua_pushboolean(L, value.as_bool());
    case Value::Kind::kInt:
    case Value::Kind::kDouble:
      return lua_pushnumber(L, value.as_double());
    case Value::Kind::kString:
      return PushText(L, value.as_string());
    case Value::Kind::kFunction:
      // In a job, a negative id means "no function".
      if (value.as_function().id < 0) return lua_pushnil(L);
      return PushFunction(L, value.as_function());
    case Value::Kind::kList:
      lua_createtable(L, static_cast<int>(value.as_list().size()), 0);
      for (size_t i = 0; i < value.as_list().size(); ++i) {
        PushValue(L, value.as_list()[i]);
        lua_rawseti(L, -2, static_cast<int>(i) + 1);
      }
      return;
    case Value::Kind::kMap:
      lua_createtable(L, 0, static_cast<int>(value.as_map().size()));
      for (const auto& [name, entry] : value.as_map()) {
        PushName(L, name);
        PushValue(L, entry);
        lua_rawset(L, -3);
      }
      return;
  }
}

FunctionRef ToFunctionRef(lua_State* L, int index) {
  index = Absolute(L, index);
  const std::string source = FunctionSource(L, FunctionInfo(L, index));
  return {FunctionId(L, index), FunctionPlace(L, index),
          lua_iscfunction(L, index) ? "" : Digest(source + CaughtValues(L, index))};
}

std::string FunctionPlace(lua_State* L, int index) {
  if (lua_iscfunction(L, index)) return "a built-in function";
  const lua_Debug info = FunctionInfo(L, Absolute(L, index));
  return Str(info.source[0] == '@' ? info.source + 1 : info.short_src, ":", info.linedefined);
}

void PushFunction(lua_State* L, const FunctionRef& function) {
  PushFunctions(L);
  lua_rawgeti(L, -1, function.id);
  lua_remove(L, -2);
  if (lua_isfunction(L, -1)) return;
  lua_pop(L, 1);
  throw ConfigError(Str("the function at ", function.where, " is not known to this Lua state"));
}

std::string FunctionName(lua_State* L, int index) {
  index = Absolute(L, index);
  const lua_Debug info = FunctionInfo(L, index);
  const std::string source = FunctionSource(L, info);
  const std::string line = source.substr(0, std::min(source.find('\n'), kMaxLine));
  static const std::regex kDefinition(R"((?:function\s+([\w.:]+)\s*\(|([\w.]+)\s*=\s*function\b))");
  std::smatch match;
  if (!std::regex_search(line, match, kDefinition)) return "";
  // Two functions in one line cannot be told apart, so neither gets a name.
  static const std::regex kAnother(R"(\bfunction\b)");
  for (const std::string& beside : {match.prefix().str(), match.suffix().str()}) {
    if (std::regex_search(beside, kAnother)) return "";
  }
  return match[1].matched ? match[1] : match[2];
}

std::string DescribeTable(lua_State* L, int index) {
  index = Absolute(L, index);
  std::vector<std::string> names;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) names.emplace_back(TextAt(L, -2));
  }
  if (names.empty()) return Str("a list of ", lua_objlen(L, index));
  std::sort(names.begin(), names.end());
  return Str("a table with the key", names.size() > 1 ? "s " : " ", Join(names, ", "));
}

bool IsPlainTable(lua_State* L, int index) {
  if (!lua_istable(L, index)) return false;
  if (!lua_getmetatable(L, index)) return true;
  lua_pushstring(L, kWatched);
  lua_rawget(L, -2);
  const bool is_data = lua_toboolean(L, -1) != 0;
  lua_pop(L, 2);
  return is_data;
}

void WatchData(lua_State* L, const char* name, lua_CFunction read) {
  if (luaL_newmetatable(L, name)) {
    lua_pushcfunction(L, read);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 1);
    lua_setfield(L, -2, kWatched);
  }
  lua_setmetatable(L, -2);
}

TableShape ShapeOf(lua_State* L, int index) {
  index = Absolute(L, index);
  TableShape shape;
  int present = 0;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (IsPosition(L, -2)) {
      shape.positions = std::max(shape.positions, static_cast<int>(lua_tonumber(L, -2)));
      ++present;
    } else if (lua_type(L, -2) == LUA_TSTRING) {
      shape.names.emplace_back(TextAt(L, -2));
    } else {
      throw ConfigError(
          Str("a table's keys must be names or 1, 2, 3, ...; here one is ", Describe(L, -2)));
    }
  }
  if (shape.positions - present > kMaxHoles) {
    throw ConfigError(Str("a list of ", shape.positions, " has only ", Plural(present, "element")));
  }
  std::sort(shape.names.begin(), shape.names.end());
  return shape;
}

}  // namespace strata::lua
