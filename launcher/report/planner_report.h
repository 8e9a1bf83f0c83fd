// PlannerReport: the answers of `strata plan --auto` and `--simulate`, for a cluster that the flags
// describe.
#pragma once

#include <string>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"
#include "engine/job/job.h"
#include "engine/layers/script.h"

namespace strata::launcher {

/// The planner's flags: auto, simulate, the cluster's flags, straggler, slow_link.
FieldTable PlannerFields();

/// True if the flags (canonical) ask for the planner instead of the job's own plan. `given` are the
/// job keys from the command line. Throws ConfigError for planner flags without --auto or
/// --simulate, and for flags and keys that the planner does not support.
bool AsksPlanner(const Value& flags, const Value& given);

/// The answer of --auto or --simulate as text, or as JSON with the flag json. `given` are the job
/// keys from the command line; --auto does not change them. Throws ConfigError as SearchFor() and
/// SimulateRun() do.
std::string PlannerReport(const Job& job, const Value& given, const Value& flags, Script* script);

}  // namespace strata::launcher
