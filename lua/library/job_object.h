// Jobs, plans and engines as Lua values. Internal to lua/.
#pragma once

#include <lua.hpp>
#include <memory>
#include <string>

#include "engine/forecast/saved_plan.h"
#include "engine/job/build_job.h"
#include "engine/job/flags/flags.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine.h"
#include "lua/core/object.h"
#include "lua/library/show.h"

namespace strata::lua {

/// The result of strata.job{...}.
struct JobObject {
  RawJob raw;
  Value overrides;  ///< from the command line, or the table of strata.load
  Job job;          ///< made from `raw` and `overrides`
};

/// The result of job:plan{...}.
struct PlanObject {
  Job job;
  Plan plan;
};

/// The result of job:start{...}.
struct EngineObject {
  /// Waits for a save that is being written; logs a warning if it fails.
  ~EngineObject();

  std::unique_ptr<Engine> engine;  ///< null once closed
  Job job;
  Plan plan;
  bool has_failed = false;  ///< true if the last step failed; the engine can then only be closed
};

template <>
struct TypeOf<EngineObject> {
  static const ObjectType& Get();
};
template <>
struct TypeOf<JobObject> {
  static const ObjectType& Get();
};
template <>
struct TypeOf<PlanObject> {
  static const ObjectType& Get();
};
template <>
struct TypeOf<SavedPlan> {
  static const ObjectType& Get();
};

/// Runs the script at `path`, pushes the job that it returns, and returns it. `settings` holds the
/// values for strata.options and strata.job in the script. Throws ConfigError if the script returns
/// anything else.
std::shared_ptr<JobObject> EvaluateJob(lua_State* L, const std::string& path, Settings* settings);

/// The keys that job:plan{...} takes: all keys of a job, and the members of parallel and batch.
const FieldTable& ChangeableKeys();
/// The job after the keys of the table at `index`, if there is one, have replaced its own:
/// job:plan{pipe=2}. A saved plan, which must fit the job, may take the table's place.
Job ChangedJob(lua_State* L, const JobObject& job, int index);

/// job:plan{...} and job:summary{...}, see library_plans.cc.
std::shared_ptr<PlanObject> JobPlan(lua_State* L, const JobObject& self);
Shown JobSummary(lua_State* L, const JobObject& self);

/// Adds strata.plan to the table at the top of the stack.
void AddPlans(lua_State* L);

/// job:search{...}, see library_search.cc. SearchKeys() are the keys it takes: the planner's
/// options and ChangeableKeys().
Shown JobSearch(lua_State* L, const JobObject& self);
const FieldTable& SearchKeys();

/// job:train{...} and job:start{...}, see training.cc.
Value JobTrain(lua_State* L, const JobObject& self);
std::shared_ptr<EngineObject> JobStart(lua_State* L, const JobObject& self);

}  // namespace strata::lua
