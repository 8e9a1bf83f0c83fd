// Arguments: the arguments of one call, by position and by name.
#include "lua/core/arguments.h"

#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"

namespace strata::lua {
namespace {

/// True if the table at `index` has at least one name and no positions.
bool HasNamesOnly(lua_State* L, int index) {
  if (!IsPlainTable(L, index)) return false;
  const TableShape shape = ShapeOf(L, index);
  return shape.positions == 0 && !shape.names.empty();
}

}  // namespace

Arguments::Arguments(lua_State* L, int first) : L_(L), first_(first) {
  const int last = lua_gettop(L);
  positions_ = last - first + 1;
  if (positions_ == 1 && IsPlainTable(L, first)) {
    table_ = named_table_ = first;
    TableShape shape = ShapeOf(L, first);
    positions_ = shape.positions;
    names_ = std::move(shape.names);
  } else if (positions_ > 0 && HasNamesOnly(L, last)) {
    named_table_ = last;
    names_ = ShapeOf(L, last).names;
    --positions_;
  }
}

void Arguments::PushPosition(int position) const {
  if (table_ != 0) {
    lua_rawgeti(L_, table_, position);
  } else {
    lua_pushvalue(L_, first_ + position - 1);
  }
}

Value::List Arguments::Positional(const std::string& subject) const {
  Value::List list;
  for (int i = 1; i <= positions_; ++i) {
    PushPosition(i);
    list.push_back(ToValue(L_, -1, Str(subject, "'s argument ", i)));
    lua_pop(L_, 1);
  }
  return list;
}

Value::Map Arguments::Named(const std::string& subject) const {
  Value::Map map;
  for (const std::string& name : names_) {
    PushText(L_, name);
    lua_rawget(L_, named_table_);
    map.emplace_back(name, ToValue(L_, -1, Str(subject, "'s ", name)));
    lua_pop(L_, 1);
  }
  return map;
}

Value OptionsOf(const Value& given, const FieldTable& fields, const std::string& subject) {
  Call call = CallOf(given);
  call.subject = subject;
  call.noun = "option";
  return Canonicalize(fields, call);
}

}  // namespace strata::lua
