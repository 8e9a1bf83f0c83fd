#include "lua/core/globals.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/expression.h"

namespace strata::lua {
namespace {

/// A piece of text that users write, and the hint that the error gives for it.
struct Hint {
  std::string_view written, said;
};

constexpr auto kGlobals = std::to_array<Hint>({
    {"strata", R"(scripts begin with: local strata = require "strata")"},
    {"nn", "it is local nn = strata.nn"},
    {"F", "it is local F = strata.F"},
    {"torch", "its functions are those of strata.F"},
    {"True", "Lua writes true"},
    {"False", "Lua writes false"},
    {"None", "Lua writes nil"},
    {"null", "Lua writes nil"},
    {"range", "Lua writes for i = 1, n do"},
    {"enumerate", "Lua writes for i, value in ipairs(list) do"},
    {"len", "Lua writes #list"},
    {"str", "Lua writes tostring(value)"},
    {"int", "Lua writes math.floor(value)"},
    {"float", "Lua writes tonumber(value)"},
    {"self", "it is the first argument of the function: function(self, x)"},
});

constexpr auto kSyntax = std::to_array<Hint>({
    {"!=", "Lua writes ~= for !="},
    {"//", "Lua writes math.floor(a / b) for a // b"},
    {"**", "Lua writes ^ for **"},
    {"+=", "Lua writes x = x + y for x += y"},
    {"-=", "Lua writes x = x - y for x -= y"},
    {"*=", "Lua writes x = x * y for x *= y"},
    {"/=", "Lua writes x = x / y for x /= y"},
    {"&&", "Lua writes and for &&"},
    {"||", "Lua writes or for ||"},
    {":repeat", "repeat is a word of Lua's; x:tile(...) does the same"},
    {"#", "Lua's comments begin with --"},
    {"[", "Lua writes lists as {1, 2}"},
    {":", "blocks begin with then or do, and end with end"},
    {"is", "Lua writes == for is"},
    {"lambda", "Lua writes function(x) return y end for lambda x: y"},
    {"def", "Lua writes function name(x) ... end"},
    {"class", "layers of your own are made by strata.layer"},
    {"import", "Lua writes local name = require \"name\""},
    {"from", "Lua writes local name = require \"name\""},
    {"elif", "Lua writes elseif ... then"},
    {"continue", "Lua has no continue"},
    {"@", "x:matmul(y) is x @ y"},
});

/// Hints for the ends of Lua error messages, where the line itself does not show the mistake.
constexpr auto kErrors = std::to_array<Hint>({
    {"')' expected near '='", "named arguments stand in braces: nn.Linear{in_features=64}"},
    {"']' expected near ','", "x[{0, 1}] is x[0, 1]"},
});

/// The position of `written` in `line`, at `from` or later, where it is not part of a longer word;
/// npos if there is none.
size_t Find(std::string_view line, std::string_view written, size_t from = 0) {
  for (size_t at = line.find(written, from); at != line.npos; at = line.find(written, at + 1)) {
    const size_t end = at + written.size();
    const bool is_part =
        IsNameLetter(written.front()) &&
        ((at > 0 && IsNameLetter(line[at - 1])) || (end < line.size() && IsNameLetter(line[end])));
    if (!is_part) return at;
  }
  return line.npos;
}

/// The line with this number, from 1; "" if there is none.
std::string_view LineOf(std::string_view text, int number) {
  for (; number > 1; --number) {
    const size_t end = text.find('\n');
    if (end == text.npos) return "";
    text.remove_prefix(end + 1);
  }
  return text.substr(0, text.find('\n'));
}

/// The line number in "net.lua:3" and "net.lua:3: ..."; 0 if there is none.
int NumberOf(std::string_view place) {
  place = place.substr(0, place.find(": "));
  const size_t colon = place.rfind(':');
  int number = 0;
  if (colon == place.npos) return number;
  std::from_chars(place.data() + colon + 1, place.data() + place.size(), number);
  return number;
}

/// True if the line tests whether the global exists: `x or y`, `x and y`, `not x`, `if x then`,
/// `x == nil`, `_G.x`.
bool AsksFor(std::string_view line, std::string_view name) {
  if (Find(line, "_G") != line.npos) return true;
  for (size_t at = Find(line, name); at != line.npos; at = Find(line, name, at + 1)) {
    if (Trim(line.substr(0, at)).ends_with("not")) return true;
    const std::string_view behind = Trim(line.substr(at + name.size()));
    for (const std::string_view word : {"or", "and", "then", "== nil", "~= nil"}) {
      if (behind.starts_with(word)) return true;
    }
  }
  return false;
}

/// "math.sqrt" for sqrt; "" for a name that is in no library.
std::string InLibrary(lua_State* L, const std::string& name) {
  const int top = lua_gettop(L);
  std::string full;
  for (const char* library : {"math", "string", "table"}) {
    lua_pushstring(L, library);
    lua_rawget(L, LUA_GLOBALSINDEX);
    if (lua_istable(L, -1)) {
      PushText(L, name);
      lua_rawget(L, -2);
      if (!lua_isnil(L, -1)) full = Str(library, ".", name);
    }
    lua_settop(L, top);
  }
  return full;
}

std::string GlobalHint(lua_State* L, const std::string& name) {
  const auto* const hint = std::ranges::find(kGlobals, std::string_view(name), &Hint::written);
  if (hint != kGlobals.end()) return Str("; ", hint->said);
  if (const std::string full = InLibrary(L, name); !full.empty()) return Str("; it is ", full);
  std::vector<std::string> names = GlobalNames(L);
  names.insert(names.end(), {"false", "nil", "true"});
  return DidYouMean(name, names, 0);
}

/// True if a line of a script reads the name without testing whether it exists.
bool IsMistake(lua_State* L, const std::string& name) {
  State::Core& core = State::Core::Of(L);
  const std::string place = core.Place(L);
  const Chunk* const chunk = core.ChunkAt(place);
  return chunk && !AsksFor(LineOf(chunk->source, NumberOf(place)), name);
}

/// __index of the globals.
int ReadUnsetGlobal(lua_State* L) {
  if (lua_type(L, 2) != LUA_TSTRING) return 0;
  const std::string name(TextAt(L, 2));
  if (name == kLastResult || !IsMistake(L, name)) return 0;
  throw ConfigError(Str("there is no global \"", name, "\"", GlobalHint(L, name)));
}

/// __index of a script's options.
int ReadUnknownOption(lua_State* L) {
  if (lua_type(L, 2) != LUA_TSTRING) return 0;
  const std::string name(TextAt(L, 2));
  if (!IsMistake(L, name)) return 0;
  constexpr size_t kListed = 20;
  throw ConfigError(Str("strata.options has no option \"", name, "\"",
                        DidYouMean(name, ShapeOf(L, 1).names, kListed)));
}

}  // namespace

void MakeGlobalsStrict(lua_State* L) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  lua_createtable(L, 0, 1);
  lua_pushcfunction(L, Bound<ReadUnsetGlobal>);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_pop(L, 1);
}

void MakeOptionsStrict(lua_State* L) { WatchData(L, "strata.options", Bound<ReadUnknownOption>); }

std::string ComparisonHint(std::string_view error) {
  const bool is_order = error.find("attempt to compare ") != error.npos;
  if (!is_order || error.find("userdata") == error.npos) return "";
  return "; tensors are compared by x:lt(y), x:le(y), x:gt(y), x:ge(y), x:eq(y) and x:ne(y)";
}

std::vector<std::string> GlobalNames(lua_State* L) {
  std::vector<std::string> names;
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  for (lua_pushnil(L); lua_next(L, -2) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) names.emplace_back(TextAt(L, -2));
  }
  lua_pop(L, 1);
  std::sort(names.begin(), names.end());
  return names;
}

std::string SyntaxHint(std::string_view error, std::string_view text) {
  constexpr std::string_view kNear = " near '";
  const size_t at = error.rfind(kNear);
  if (at == error.npos || error.ends_with("'<eof>'")) return "";  // more lines may follow
  const std::string_view near =
      error.substr(at + kNear.size(), error.size() - at - kNear.size() - 1);
  const std::string_view line = LineOf(text, NumberOf(error));
  for (const Hint& hint : kSyntax) {
    const bool is_word = IsNameLetter(hint.written.front());
    const bool is_near = hint.written.find(near) != hint.written.npos;
    if ((is_word || is_near) && Find(line, hint.written) != line.npos) {
      return Str("; ", hint.said);
    }
  }
  for (const Hint& hint : kErrors) {
    if (error.ends_with(hint.written)) return Str("; ", hint.said);
  }
  return "";
}

}  // namespace strata::lua
