// PlannerReport: `strata plan --auto` and `--simulate`, for clusters that need not be here.
#pragma once

#include <string>

#include "engine/base/value.h"
#include "engine/spec/fields.h"
#include "engine/spec/job.h"
#include "engine/spec/script.h"

namespace strata::launcher {

/// auto, simulate, the cluster's flags, straggler, slow_link.
FieldTable PlannerFields();

/// Whether the flags (canonical) ask for the planner instead of the job's own plan. Throws
/// ConfigError for flags that mean something to the planner alone, without it, and for what it does
/// not take; `given`: job keys from the command line.
bool AsksPlanner(const Value& flags, const Value& given);

/// What --auto or --simulate answer, as text or (flag json) as JSON. `given`: job keys from the
/// command line, which --auto keeps as they are. Throws ConfigError as SearchFor() and
/// SimulateRun() do.
std::string PlannerReport(const Job& job, const Value& given, const Value& flags, Script* script);

}  // namespace strata::launcher
