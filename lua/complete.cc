// Completion of names at the prompt.

#include <algorithm>
#include <cctype>

#include "engine/base/text.h"
#include "lua/binding.h"
#include "lua/convert.h"
#include "lua/core.h"
#include "lua/library.h"
#include "lua/object.h"
#include "lua/state.h"

namespace strata::lua {
namespace {

constexpr const char* kKeywords[] = {"and",   "break", "do",       "else", "elseif", "end",
                                     "false", "for",   "function", "goto", "if",     "in",
                                     "local", "nil",   "not",      "or",   "repeat", "return",
                                     "then",  "true",  "until",    "while"};

bool IsNameLetter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

/// What stands before the cursor: `plan.layers[1].pa` is the steps plan, layers, 1 and the word pa.
struct Expression {
  std::vector<std::string> steps;
  std::string word;
  /// False after what only running it could tell: `f().pa`, `t[i].pa`.
  bool is_known = true;
};

/// The longest chain of names, dots, colons and [numbers] that ends the line. A bracket that is
/// still open and the dots of a concatenation begin a new one.
std::string_view Chain(std::string_view line) {
  size_t begin = line.size();
  for (int open = 0; begin > 0; --begin) {
    const char c = line[begin - 1];
    if (!IsNameLetter(c) && c != '.' && c != ':' && c != '[' && c != ']') break;
    if (line.substr(0, begin).ends_with("..")) break;
    if (c == ']') ++open;
    if (c == '[' && --open < 0) break;
  }
  return line.substr(begin);
}

Expression Parse(std::string_view chain) {
  Expression expression;
  if (!chain.empty() && !IsNameLetter(chain[0])) expression.is_known = false;
  for (char c : chain) {
    if (IsNameLetter(c)) {
      expression.word += c;
      continue;
    }
    const bool is_index = expression.word.find_first_not_of("0123456789") == std::string::npos;
    if (c == ']' && !is_index) expression.is_known = false;
    if (!expression.word.empty()) expression.steps.push_back(std::exchange(expression.word, ""));
  }
  return expression;
}

/// Replaces the value at the top of the stack by its member; false where there is none. Follows
/// tables without their metatables, and the properties of our own objects.
bool Follow(lua_State* L, const std::string& step) {
  const bool index = std::isdigit(static_cast<unsigned char>(step[0])) && step.size() < 9;
  if (lua_istable(L, -1)) {
    if (index) {
      lua_rawgeti(L, -1, std::stoi(step));
    } else {
      PushText(L, step);
      lua_rawget(L, -2);
    }
    return !lua_isnil(L, -1);
  }
  const std::vector<std::string> members = ObjectMembers(L, -1);
  if (std::find(members.begin(), members.end(), step) == members.end()) return false;
  lua_getfield(L, -1, step.c_str());
  return true;
}

/// Whether the table at `index` is strata.F, whose operators are no fields until they are used.
bool IsOperators(lua_State* L, int index) {
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  lua_getfield(L, -1, "F");
  const bool same = lua_rawequal(L, -1, index);
  lua_pop(L, 2);
  return same;
}

std::vector<std::string> OperatorNames(lua_State* L) {
  lua_getfield(L, LUA_REGISTRYINDEX, kOperatorNames);
  lua_call(L, 0, 1);
  std::vector<std::string> names;
  const Value list = ToValue(L, -1, "the operators");
  for (const Value& name : list.as_list()) names.push_back(name.as_string());
  lua_pop(L, 1);
  return names;
}

std::vector<std::string> MembersOf(lua_State* L, int index) {
  if (!lua_istable(L, index)) return ObjectMembers(L, index);
  std::vector<std::string> names;
  if (IsOperators(L, index)) names = OperatorNames(L);
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) == LUA_TSTRING) names.emplace_back(TextAt(L, -2));
  }
  return names;
}

std::vector<std::string> Candidates(lua_State* L, const Expression& expression) {
  if (!expression.is_known) return {};
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  for (const std::string& step : expression.steps) {
    if (!Follow(L, step)) return {};
  }
  std::vector<std::string> names = MembersOf(L, lua_gettop(L));
  if (expression.steps.empty()) {
    names.insert(names.end(), std::begin(kKeywords), std::end(kKeywords));
  }
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(expression.word); });
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

Completion State::Complete(std::string_view line) {
  Completion completion;
  const Expression expression = Parse(Chain(line));
  completion.start = line.size() - expression.word.size();
  try {
    Session(*this).Run([&](lua_State* L) {
      OpenPrompt(*core_, L);
      completion.candidates = Candidates(L, expression);
    });
  } catch (const Error&) {  // A property that cannot be had, such as a plan's program.
  }
  return completion;
}

}  // namespace strata::lua
