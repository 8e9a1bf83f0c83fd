// string.find, match, gmatch and gsub, with the behaviour of Lua 5.1.

#include <algorithm>
#include <string>

#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/core.h"
#include "lua/sandbox/pattern.h"
#include "lua/sandbox/sandbox.h"

namespace strata::lua {
namespace {

/// A string argument; numbers are strings too, as in all string functions of Lua.
std::string_view Subject(lua_State* L, int index) {
  size_t size = 0;
  const char* text = luaL_checklstring(L, index, &size);
  return {text, size};
}

Pattern PatternFor(lua_State* L, std::string_view subject, std::string_view pattern) {
  const Limits& limits = State::Core::Of(L).limits;
  return Pattern(subject, pattern, [&limits] { limits.Poll(); });
}

/// The place where a search starts: `init` counts from 1, from the end where negative. False where
/// it is behind the end.
bool Start(lua_State* L, int index, size_t size, size_t& start) {
  const double init = luaL_optnumber(L, index, 1);
  const double from = init > 0 ? init - 1 : init < 0 ? static_cast<double>(size) + init : 0;
  start = static_cast<size_t>(std::clamp(from, 0.0, static_cast<double>(size)));
  return from <= static_cast<double>(size);
}

void PushCapture(lua_State* L, std::string_view subject, const Capture& capture) {
  if (capture.is_position) {
    lua_pushinteger(L, static_cast<lua_Integer>(capture.begin) + 1);
  } else {
    PushText(L, subject.substr(capture.begin, capture.length));
  }
}

/// All captures; the whole match where there is none and `whole_match` says so.
int PushCaptures(lua_State* L, std::string_view subject, const Match& match, bool whole_match) {
  luaL_checkstack(L, static_cast<int>(match.captures.size()) + 3, "too many captures");
  for (const Capture& capture : match.captures) PushCapture(L, subject, capture);
  if (!match.captures.empty() || !whole_match) return static_cast<int>(match.captures.size());
  PushText(L, subject.substr(match.begin, match.end - match.begin));
  return 1;
}

int PushPlace(lua_State* L, size_t begin, size_t end) {
  lua_pushinteger(L, static_cast<lua_Integer>(begin) + 1);
  lua_pushinteger(L, static_cast<lua_Integer>(end));
  return 2;
}

int Search(lua_State* L, bool find) {
  const std::string_view subject = Subject(L, 1), pattern = Subject(L, 2);
  size_t start = 0;
  if (!Start(L, 3, subject.size(), start)) {
    lua_pushnil(L);
    return 1;
  }
  const bool plain = pattern.find_first_of("^$*+?.([%-") == std::string_view::npos;
  if (find && (plain || lua_toboolean(L, 4))) {
    const size_t found = subject.find(pattern, start);
    if (found != std::string_view::npos) return PushPlace(L, found, found + pattern.size());
  } else if (auto match = PatternFor(L, subject, pattern).Find(start)) {
    const int places = find ? PushPlace(L, match->begin, match->end) : 0;
    return places + PushCaptures(L, subject, *match, !find);
  }
  lua_pushnil(L);
  return 1;
}

int StringFind(lua_State* L) { return Search(L, true); }
int StringMatch(lua_State* L) { return Search(L, false); }

/// The iterator of gmatch. Upvalues: subject, pattern, where to go on.
int NextMatch(lua_State* L) {
  const std::string_view subject = TextAt(L, lua_upvalueindex(1));
  const auto start = static_cast<size_t>(lua_tonumber(L, lua_upvalueindex(3)));
  if (start > subject.size()) return 0;
  const auto match = PatternFor(L, subject, TextAt(L, lua_upvalueindex(2))).Find(start);
  if (!match) return 0;
  const size_t next = match->end == match->begin ? match->end + 1 : match->end;
  lua_pushnumber(L, static_cast<double>(next));
  lua_replace(L, lua_upvalueindex(3));
  return PushCaptures(L, subject, *match, true);
}

int StringGmatch(lua_State* L) {
  const auto subject = Subject(L, 1), pattern = Subject(L, 2);
  PushText(L, subject);
  PushText(L, pattern);
  lua_pushnumber(L, 0);
  lua_pushcclosure(L, Bound<NextMatch>, 3);
  return 1;
}

/// The replacement string with %0..%9 filled in.
std::string Expand(lua_State* L, std::string_view subject, const Match& match) {
  const std::string_view replacement = TextAt(L, 3);
  std::string text;
  for (size_t i = 0; i < replacement.size(); ++i) {
    if (replacement[i] != '%') {
      text += replacement[i];
      continue;
    }
    const char next = ++i < replacement.size() ? replacement[i] : '\0';
    if (next < '0' || next > '9') {
      text += next;
      continue;
    }
    const size_t index = static_cast<size_t>(next - '1');
    if (next == '0' || (index == 0 && match.captures.empty())) {
      text += subject.substr(match.begin, match.end - match.begin);
    } else if (index < match.captures.size()) {
      PushCapture(L, subject, match.captures[index]);
      text += TextAt(L, -1);
      lua_pop(L, 1);
    } else {
      throw ConfigError(Str("the pattern has no capture %", next));
    }
  }
  return text;
}

/// What stands in place of the match: by gsub's string, table or function.
std::string Replacement(lua_State* L, std::string_view subject, const Match& match) {
  const std::string_view whole = subject.substr(match.begin, match.end - match.begin);
  switch (lua_type(L, 3)) {
    case LUA_TTABLE:
      PushCaptures(L, subject, match, true);
      lua_settop(L, 5);  // The first capture.
      lua_gettable(L, 3);
      break;
    case LUA_TFUNCTION:
      lua_pushvalue(L, 3);
      CallNested(L, PushCaptures(L, subject, match, true), 1);
      break;
    default:
      return Expand(L, subject, match);
  }
  std::string text(whole);
  if (lua_toboolean(L, -1)) {
    if (!lua_isstring(L, -1))
      throw ConfigError("a replacement must be a string, it is " + Describe(L, -1));
    text = TextAt(L, -1);
  }
  lua_settop(L, 4);
  return text;
}

int StringGsub(lua_State* L) {
  const std::string_view subject = Subject(L, 1), pattern = Subject(L, 2);
  const bool known = lua_isstring(L, 3) || lua_istable(L, 3) || lua_isfunction(L, 3);
  if (!known) ThrowExpected(L, 3, "a string, a table or a function");
  const double most = luaL_optnumber(L, 4, static_cast<double>(subject.size()) + 1);
  lua_settop(L, 4);
  const size_t memory = State::Core::Of(L).limits.memory_limit();
  Pattern matcher = PatternFor(L, subject, pattern);
  std::string result;
  size_t at = 0;
  int count = 0;
  while (count < most) {
    const auto match = matcher.Find(at);
    if (!match) break;
    ++count;
    result += subject.substr(at, match->begin - at);
    result += Replacement(L, subject, *match);
    if (result.size() > memory) throw std::bad_alloc();
    at = match->end;
    if (match->end == match->begin) {  // An empty match: the next letter stays.
      if (at < subject.size()) result += subject[at];
      ++at;
    }
    if (at > subject.size() || matcher.anchored()) break;
  }
  if (at < subject.size()) result += subject.substr(at);
  PushText(L, result);
  lua_pushinteger(L, count);
  return 2;
}

}  // namespace

void OpenPatternFunctions(lua_State* L) {
  const NamedFunction functions[] = {{"find", Bound<StringFind>},
                                     {"match", Bound<StringMatch>},
                                     {"gmatch", Bound<StringGmatch>},
                                     {"gsub", Bound<StringGsub>}};
  SetFunctions(L, functions);
}

}  // namespace strata::lua
