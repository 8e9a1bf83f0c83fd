// strata.partition: cuts of weights, without a job.

#include "engine/plan/cut/partition.h"
#include "engine/spec/fields/fields.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/notes.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

void PushBounds(lua_State* L, const partition::Bounds& bounds) {
  PushValue(L, Value::IntList({bounds.begin(), bounds.end()}));
}

/// strata.partition.uniform(n, parts)
int Uniform(lua_State* L) {
  const int64_t items = IntArgument(L, 1, "a whole number of items");
  PushBounds(L, partition::Uniform(items, IntArgument(L, 2, "a whole number of parts")));
  return 1;
}

/// strata.partition.balanced(weights, parts [, {compat="deepspeed"}])
int Balanced(lua_State* L) {
  static const FieldTable kFields = {
      Field::Choice("compat", {"deepspeed"}, "give what this system gives").Optional()};
  Call call = CallOf(ToValue(L, 3, "the options"));
  call.subject = "balanced";
  call.noun = "option";
  const bool deepspeed = !Canonicalize(kFields, call)["compat"].is_null();
  PushBounds(L, partition::Balanced(
                    ToValue(L, 1, "the weights"), IntArgument(L, 2, "a whole number of parts"),
                    deepspeed ? partition::Compat::kDeepSpeed : partition::Compat::kNone));
  return 1;
}

}  // namespace

void AddPartition(lua_State* L) {
  lua_newtable(L);
  const NamedFunction functions[] = {
      {"uniform", Bound<Uniform, 2>,
       "strata.partition.uniform(n, parts): bounds of as many items in each part"},
      {"balanced", Bound<Balanced, 3>,
       "strata.partition.balanced(weights, parts [, {compat=\"deepspeed\"}]): bounds with the "
       "lightest heaviest part"}};
  SetFunctions(L, functions);
  NoteHelp(L, -1, "strata.partition: cuts of weights, without a job");
  lua_setfield(L, -2, "partition");
}

}  // namespace strata::lua
