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
#include "launcher/process/supervisor.h"
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

/// "--script_timeout=20": how long the script may take before training.
Field ScriptTimeoutField();
/// The limits of a script that is evaluated with these flags of a command.
lua::StateOptions StateOptionsOf(const Value& own_flags);
/// "--prepare_timeout=120": how long all that comes before the ranks may take.
Field PrepareTimeoutField();
SupervisorOptions SupervisorOptionsOf(const Value& own_flags);

/// Places the job on this machine. `own_flags`: the command's, with "nproc".
Plan PlanHere(const Job& job, const Value& own_flags, Script& script, PlanOptions options = {});
/// Places it where the command line and the environment say. Where several machines must agree,
/// nothing is measured.
Plan PlanOn(const Placement& placement, const Job& job, Script& script, PlanOptions options = {});

}  // namespace strata::launcher
