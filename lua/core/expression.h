// A partial parser of Lua source text: it knows as much of the grammar as completion, help and the
// places of errors need. Internal to lua/.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace strata::lua {

/// True for a character that a name may contain: a letter, a digit or "_". (A name does not begin
/// with a digit.)
bool IsNameLetter(char c);

/// The step of a Chain that stands for a call.
inline constexpr char kCallStep[] = "()";

/// A chain of names, dots, colons, [numbers] and calls, followed by an incomplete word.
/// `plan.layers[1].pa` has the steps "plan", "layers", "1" and the word "pa". `job:plan{pipe=2}:mo`
/// has the steps "job", "plan", "()" and the word "mo".
struct Chain {
  std::string_view text;
  std::vector<std::string> steps;
  std::string word;
  bool is_method = false;  ///< there is a colon before the word
  /// False when the value before the word is only known at run time: `t[i].pa`, `(a or b).pa`.
  bool is_known = true;
};

/// The longest chain at the end of the text. It begins after the last open bracket or concatenation
/// (..). The content of closed brackets and of strings is skipped.
Chain ParseChain(std::string_view text);

/// A bracket or string that is still open at the end of the text, and the elements in it so far.
struct Open {
  char kind = 0;     ///< '(', '{' or '[', or '"' for a string of any kind
  size_t begin = 0;  ///< the position after the bracket or quote
  std::string key;   ///< the key in `key = {` and `key = "`; "" when there is none

  int elements = 0;                ///< the number of elements that end in a comma or semicolon
  size_t element = 0;              ///< the position where the last element begins
  std::string element_key;         ///< the last element's name, if it is `name = ...`
  std::vector<std::string> keys;   ///< the names of all elements `name = ...`
  std::vector<size_t> key_places;  ///< the positions of their `=`
  std::string first;               ///< the first element if it is a string, as in {"sgd", ...}
};

/// All open brackets and strings, from the outermost to the innermost. Comments and closed strings
/// are skipped. Empty when the text nests too deeply.
std::vector<Open> OpenBrackets(std::string_view text);

/// The line (from 1) of each element `name = ...` in a table over several lines. `line` is the
/// table's first or last line. If several tables begin or end there, the longest one is used.
std::map<std::string, int> KeyLines(std::string_view source, int line);

}  // namespace strata::lua
