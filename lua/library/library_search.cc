// job:search{...}: runs the planner.

#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/job/flags/overrides.h"
#include "engine/search/job_search.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/library/job_object.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

const FieldTable& Fields() {
  static const FieldTable kFields = [] {
    FieldTable fields = search::ClusterFlags();
    fields.push_back(
        Field::Int("top", "how many plans are given").AtLeast(1).AtMost(100).Default(5));
    return fields;
  }();
  return kFields;
}

/// Throws ConfigError unless the name is an option of the planner or a key of the job.
void CheckName(const std::string& name) {
  const bool is_path = name.find('.') != std::string::npos;
  if (is_path || FindField(SearchKeys(), name) != nullptr) return;
  throw ConfigError(Str("search has no option \"", name, "\", nor the job such a key",
                        DidYouMean(name, FieldNames(SearchKeys()), 0)));
}

}  // namespace

const FieldTable& SearchKeys() {
  static const FieldTable kKeys = [] {
    FieldTable keys = Fields();
    keys.insert(keys.end(), ChangeableKeys().begin(), ChangeableKeys().end());
    return keys;
  }();
  return kKeys;
}

/// job:search{gpus=64, memory="80GB", link="ndr", cluster="8xH100", top=5, pipe=4, ...} takes the
/// planner's options and keys of the job; the planner does not change these keys. Returns
/// {plans={{step=, keys=, ...}, ...}, what_if=, text=, ...}.
Shown JobSearch(lua_State* L, const JobObject& self) {
  if (!lua_isnoneornil(L, 2) && !IsPlainTable(L, 2)) ThrowExpected(L, 2, "a table of options");
  Value options = Value::MakeMap(), keys = Value::MakeMap();
  if (!lua_isnoneornil(L, 2)) {
    const Call all = CallOf(ToValue(L, 2, "the options"));
    if (!all.positional.empty()) {
      throw ConfigError(Str("search takes options by name, such as {gpus=64}; got ",
                            all.positional[0].Describe(), " without a name"));
    }
    for (const auto& [name, value] : all.named) {
      CheckName(name);
      (FindField(Fields(), name) != nullptr ? options : keys).Set(name, value);
    }
  }
  options = OptionsOf(options, Fields(), "search");
  PushValue(L, keys);
  const Job job = ChangedJob(L, self, lua_gettop(L));
  const Value given = Overrides(keys, State::Core::Of(L).Place(L));
  const search::JobSearch search = SearchFor(
      job, given, search::ToRequest(options, job), static_cast<int>(options["top"].as_int()),
      &State::Core::Of(L).owner.script(), search::ToLimits(options));
  const std::string text = SearchText(search);
  return {SearchRecord(search).Set("text", text), text};
}

}  // namespace strata::lua
