// ScriptJob: a script evaluated with its command line, and its job planned. What every command that
// takes a script begins with.
#pragma once

#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/spec/fields.h"
#include "engine/spec/flags.h"
#include "engine/spec/job.h"
#include "launcher/command.h"
#include "launcher/placement.h"
#include "lua/state.h"

namespace strata::launcher {

/// "SCRIPT --flags" taken apart; the flags serve one evaluation. Short ones (-p 2) are there in
/// full, and below them the job keys of --config.
struct ScriptArguments {
  std::string path;
  Flags flags;
};
/// Throws ConfigError when there is not exactly one script, or a flag has a wrong value.
ScriptArguments ParseScriptArguments(const Command& command,
                                     const std::vector<std::string>& arguments);

/// "--nproc=N": how many ranks to start. For commands that run on this machine alone.
Field NprocField();
/// "--config=F.json": job keys in a file (config_file.h).
Field ConfigField();

/// Places the job on this machine. `own_flags`: the command's, with "nproc".
Plan PlanHere(const Job& job, const Value& own_flags, Script& script, PlanOptions options = {});
/// Places it where the command line and the environment say. Where several machines must agree,
/// nothing is measured.
Plan PlanOn(const Placement& placement, const Job& job, Script& script, PlanOptions options = {});

}  // namespace strata::launcher
