// Arguments: the arguments of one call, by position and by name. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"

namespace strata::lua {

/// The arguments of one call. `f{1, 2, x=3}` and `f(1, 2, {x=3})` mean the same; so do `f(1, 2)`
/// and `f{1, 2}`.
class Arguments {
 public:
  /// Reads the arguments from stack index `first` to the top of the stack.
  Arguments(lua_State* L, int first);

  int positions() const { return positions_; }
  /// Pushes the argument at `position`, counted from 1.
  void PushPosition(int position) const;

  /// The arguments with positions and those with names, as plain data. Both throw ConfigError for
  /// an argument that is not plain data; the message names it as an argument of `subject`.
  Value::List Positional(const std::string& subject) const;
  Value::Map Named(const std::string& subject) const;

 private:
  lua_State* L_;
  int first_;
  int table_ = 0;  // stack index of the table in f{...}; 0 = there is none
  int positions_ = 0;
  int named_table_ = 0;  // stack index of the table with the named arguments
  std::vector<std::string> names_;
};

/// Checks and completes a table of options (or null) by Canonicalize(). `subject` is the name of
/// the function that takes the options, such as "simulate". Throws ConfigError as Canonicalize()
/// does.
Value OptionsOf(const Value& given, const FieldTable& fields, const std::string& subject);

}  // namespace strata::lua
