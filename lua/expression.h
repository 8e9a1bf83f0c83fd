// What stands before a cursor: enough of Lua's grammar for completion and help. Runs nothing of the
// user's. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// The step of a chain that calls what the steps before it give.
inline constexpr char kCallStep[] = "()";

/// A chain of names, dots, colons, [numbers] and calls: `plan.layers[1].pa` is the steps plan,
/// layers, 1 and the word pa, `job:plan{pipe=2}:mo` the steps job, plan, () and the word mo.
struct Chain {
  std::string_view text;
  std::vector<std::string> steps;
  std::string word;
  bool is_method = false;  ///< a colon stands before the word
  /// False after what only running it could tell: `t[i].pa`, `(a or b).pa`.
  bool is_known = true;
};

/// The longest chain that ends the text. A bracket that is still open and the dots of a
/// concatenation begin a new one. What brackets and strings hold is skipped.
Chain ParseChain(std::string_view text);

/// A bracket or a string that is open where the text ends, with what its elements say so far.
struct Open {
  char kind = 0;     ///< '(', '{' or '[', or '"' for a string of any kind
  size_t begin = 0;  ///< the place behind it
  std::string key;   ///< of `key = {`, `key = "`; "" where none stands there

  int elements = 0;                ///< finished by a comma or semicolon
  size_t element = 0;              ///< where the last one begins
  std::string element_key;         ///< of `name = ...`, the last one
  std::vector<std::string> keys;   ///< of all elements
  std::vector<size_t> key_places;  ///< behind them, where their `=` are
  std::string first;               ///< a string that is the first element, as in {"sgd", ...}
};

/// All that are open, the outermost first; empty where they nest beyond reason. Comments and
/// strings that end are skipped.
std::vector<Open> OpenBrackets(std::string_view text);

/// The lines, from 1, of the elements `name = ...` of a table of several lines, of which `line` is
/// the first or the last; of the longest one where several are.
std::map<std::string, int> KeyLines(std::string_view source, int line);

/// Whether the table at `index` is strata.F, whose operators are no fields until they are used.
bool IsOperators(lua_State* L, int index);

/// Replaces the value at the top of the stack by its member; false where there is none, and then it
/// stays. Follows tables without their metatables, and the properties of our own objects. Calls
/// nothing: a call, and what follows one, gives the type that the function is noted to give
/// (NoteResult), whose members are followed in their turn.
bool FollowStep(lua_State* L, const std::string& step);

}  // namespace strata::lua
