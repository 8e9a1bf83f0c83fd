// The printed form of Lua values.
#include "lua/library/show.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "engine/base/text.h"
#include "engine/base/value.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/library/layer_object.h"

namespace strata::lua {
namespace {

constexpr size_t kWidth = 100;
constexpr size_t kShort = 16;  // longest entry that shares its line with others
constexpr int kMaxEntries = 200;
constexpr int kMaxNesting = 20;

std::string NumberText(double number) { return Printf("%.14g", number); }

std::string FunctionText(lua_State* L, int index) {
  const std::string name = FunctionName(L, index);
  return Str("function", name.empty() ? "" : " ", name, " (", FunctionPlace(L, index), ")");
}

/// Calls __tostring; false if the value has none.
bool CallToString(lua_State* L, int index, std::string& text) {
  if (!luaL_getmetafield(L, index, "__tostring")) return false;
  lua_pushvalue(L, index);
  CallNested(L, 1, 1);
  if (!lua_isstring(L, -1)) throw ConfigError("__tostring must give a string");
  text = TextAt(L, -1);
  lua_pop(L, 1);
  return true;
}

/// Prints one value; remembers the tables that contain the current one.
class Printer {
 public:
  explicit Printer(lua_State* L) : L_(L) {}

  std::string Text(int index, bool quoted) {
    index = index < 0 ? lua_gettop(L_) + 1 + index : index;
    std::string text;
    switch (lua_type(L_, index)) {
      case LUA_TNIL:
        return "nil";
      case LUA_TNUMBER:
        return NumberText(lua_tonumber(L_, index));
      case LUA_TSTRING:
        return quoted ? Value(TextAt(L_, index)).ToLua() : std::string(TextAt(L_, index));
      case LUA_TBOOLEAN:
        return lua_toboolean(L_, index) ? "true" : "false";
      case LUA_TFUNCTION:
        return FunctionText(L_, index);
      default:
        if (!inside_.empty() && ShownShort(index, text)) return text;
        if (CallToString(L_, index, text)) return text;
        if (lua_istable(L_, index)) return Table(index);
        return Str(luaL_typename(L_, index), ": ", lua_topointer(L_, index));
    }
  }

 private:
  /// Shows a type of layer, or a table of the library, by its name. True if the value is one.
  bool ShownShort(int index, std::string& text) {
    const auto constructor = ObjectAt<LayerConstructor>(L_, index);
    if (constructor) text = constructor->name;
    const std::string help = constructor ? "" : NotedHelp(L_, index);
    if (!help.empty()) text = help.substr(0, help.find_first_of(":({"));
    return !text.empty();
  }

  std::string Table(int index) {
    const void* self = lua_topointer(L_, index);
    if (std::find(inside_.begin(), inside_.end(), self) != inside_.end()) return "{...}";
    if (inside_.size() >= kMaxNesting) return "{...}";
    luaL_checkstack(L_, 8, "tables are nested too deeply");
    inside_.push_back(self);
    std::vector<std::string> entries = Entries(index);
    inside_.pop_back();
    return Layout(entries);
  }

  std::vector<std::string> Entries(int index) {
    std::vector<std::string> entries;
    const int length = static_cast<int>(lua_objlen(L_, index));
    for (int i = 1; i <= std::min(length, kMaxEntries); ++i) {
      lua_rawgeti(L_, index, i);
      entries.push_back(Text(-1, true));
      lua_pop(L_, 1);
    }
    if (length > kMaxEntries) entries.push_back(Str("... ", length - kMaxEntries, " more"));
    std::vector<std::string> named = NamedEntries(index, length);
    std::sort(named.begin(), named.end());
    entries.insert(entries.end(), named.begin(), named.end());
    return entries;
  }

  std::vector<std::string> NamedEntries(int index, int length) {
    std::vector<std::string> entries;
    for (lua_pushnil(L_); lua_next(L_, index) != 0; lua_pop(L_, 1)) {
      const bool listed = lua_type(L_, -2) == LUA_TNUMBER && lua_tonumber(L_, -2) >= 1 &&
                          lua_tonumber(L_, -2) <= length;
      if (listed || static_cast<int>(entries.size()) >= kMaxEntries) continue;
      entries.push_back(Str(Key(-2), "=", Text(-1, true)));
    }
    return entries;
  }

  /// A key as Value::ToLua() writes it: bare if it is a Lua name, otherwise in brackets.
  std::string Key(int index) {
    if (lua_type(L_, index) != LUA_TSTRING) return Str("[", Text(index, true), "]");
    const std::string entry = Value::MakeMap({{std::string(TextAt(L_, index)), true}}).ToLua();
    return entry.substr(1, entry.size() - std::strlen("{=true}"));
  }

  static std::string Layout(const std::vector<std::string>& entries) {
    const std::string line = Str("{", Join(entries, ", "), "}");
    if (line.size() <= kWidth && line.find('\n') == std::string::npos) return line;
    if (std::ranges::all_of(entries, IsShort)) return Columns(entries);
    std::string text = "{\n";
    for (const std::string& entry : entries) text += Indented(entry) + ",\n";
    return text + "}";
  }

  static bool IsShort(const std::string& entry) {
    return entry.size() <= kShort && entry.find('\n') == std::string::npos;
  }

  /// Arranges short entries in columns, as many as fit into a line.
  static std::string Columns(const std::vector<std::string>& entries) {
    size_t widest = 0;
    for (const std::string& entry : entries) widest = std::max(widest, entry.size());
    const size_t columns = std::max<size_t>(1, (kWidth - 1) / (widest + 2));
    std::string text = "{\n";
    for (size_t i = 0; i < entries.size(); ++i) {
      text += i % columns == 0 ? "  " : " ";
      text += std::string(widest - entries[i].size(), ' ') + entries[i] + ",";
      if ((i + 1) % columns == 0 || i + 1 == entries.size()) text += "\n";
    }
    return text + "}";
  }

  static std::string Indented(const std::string& entry) {
    std::string text = "  ";
    for (char c : entry) {
      text += c;
      if (c == '\n') text += "  ";
    }
    return text;
  }

  lua_State* L_;
  std::vector<const void*> inside_;
};

int GiveText(lua_State* L) {
  lua_pushvalue(L, lua_upvalueindex(1));
  return 1;
}

}  // namespace

std::string Show(lua_State* L, int index, bool quoted) { return Printer(L).Text(index, quoted); }

template <>
void Push(lua_State* L, const Shown& shown) {
  PushValue(L, shown.value);
  lua_newtable(L);
  PushText(L, shown.text.substr(0, shown.text.find_last_not_of('\n') + 1));
  lua_pushcclosure(L, GiveText, 1);
  lua_setfield(L, -2, "__tostring");
  lua_pushliteral(L, "report");
  lua_setfield(L, -2, "__metatable");
  lua_setmetatable(L, -2);
}

}  // namespace strata::lua
