// strata.partition: methods that cut a list of weights into parts, without a job.

#include "engine/base/fields/fields.h"
#include "engine/plan/cut/partition.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/notes.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

/// strata.partition.balanced(weights, parts [, {compat="deepspeed"}])
partition::Bounds Balanced(const Value& weights, int64_t parts, const Value& options) {
  static const FieldTable kFields = {
      Field::Choice("compat", {"deepspeed"}, "give what this system gives").Optional()};
  const bool deepspeed = !OptionsOf(options, kFields, "balanced")["compat"].is_null();
  return partition::Balanced(weights, parts,
                             deepspeed ? partition::Compat::kDeepSpeed : partition::Compat::kNone);
}

}  // namespace

void AddPartition(lua_State* L) {
  lua_newtable(L);
  const NamedFunction functions[] = {
      {"uniform",
       Function<partition::Uniform, "a whole number of items", "a whole number of parts">,
       "strata.partition.uniform(n, parts): bounds of as many items in each part"},
      {"balanced", Function<Balanced, "the weights", "a whole number of parts", "the options">,
       "strata.partition.balanced(weights, parts [, {compat=\"deepspeed\"}]): bounds with the "
       "lightest heaviest part"}};
  SetFunctions(L, functions);
  NoteHelp(L, -1, "strata.partition: cuts of weights, without a job");
  lua_setfield(L, -2, "partition");
}

}  // namespace strata::lua
