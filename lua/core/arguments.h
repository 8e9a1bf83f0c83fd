// The arguments of a call with positions and names. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <string>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"

namespace strata::lua {

/// `f{1, 2, x=3}`, `f(1, 2, {x=3})` and, without names, `f(1, 2)` and `f{1, 2}` mean the same.
class Arguments {
 public:
  /// Those from stack index `first` to the top.
  Arguments(lua_State* L, int first);

  int positions() const { return positions_; }
  /// Pushes one by its position, counted from 1.
  void PushPosition(int position) const;

  /// The arguments with positions, and those with names, as plain data. Throws ConfigError for one
  /// that is no plain data; the text names it as an argument of `subject`.
  Value::List Positional(const std::string& subject) const;
  Value::Map Named(const std::string& subject) const;

 private:
  lua_State* L_;
  int first_;
  int table_ = 0;  // stack index of the table in f{...}; 0 = there is none
  int positions_ = 0;
  int named_table_ = 0;  // where the names are
  std::vector<std::string> names_;
};

/// A table of options, or null, as Canonicalize() makes it complete. `subject` is who takes the
/// options: "simulate". Throws ConfigError as that does.
Value OptionsOf(const Value& given, const FieldTable& fields, const std::string& subject);

}  // namespace strata::lua
