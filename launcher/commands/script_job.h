// ScriptJob: the first steps of every command that takes a script: reading the command line, and
// planning the job.
#pragma once

#include <string>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/job/flags/flags.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "launcher/command.h"
#include "launcher/place/placement.h"
#include "launcher/process/supervisor.h"
#include "launcher/terminal/terminal.h"
#include "lua/core/state.h"

namespace strata::launcher {

/// The path of a script: a word without an ending, "digits", is a model that comes with the
/// program, unless there is a file of that name. Throws ConfigError where there is neither.
std::string ScriptPath(const std::string& name);

/// The parts of "SCRIPT --flags". Short flags (-p 2) have their full names. The job keys of
/// --config are included; flags of the command line take precedence. The flags can be used for one
/// evaluation of the script.
struct ScriptArguments {
  std::string path;
  Flags flags;
};
/// Throws ConfigError when there is not exactly one script, or a flag has a wrong value.
ScriptArguments ParseScriptArguments(const Command& command,
                                     const std::vector<std::string>& arguments);

/// The arguments with flags that hold over those before; what is behind "--" stays behind it.
std::vector<std::string> WithFlags(std::vector<std::string> arguments,
                                   const std::vector<std::string>& flags);

/// The flag --config=F.json, a file with job keys (config_file.h).
Field ConfigField();

/// "--script_timeout=20": how long the script may take before training.
Field ScriptTimeoutField();
/// "--allow_read=DIR": what scripts may read beside their own folder; may come again.
Field AllowReadField();
/// The limits of a script that is evaluated with these flags of a command. Throws ConfigError for
/// an --allow_read that reads as something else than a path.
lua::StateOptions StateOptionsOf(const Value& own_flags);
/// "--prepare_timeout=120": how long all that comes before the ranks may take.
Field PrepareTimeoutField();
/// `output`: where the job's listener writes.
SupervisorOptions SupervisorOptionsOf(const Value& own_flags, OutputQueue& output);

/// Shows the cause of a job that failed; returns its exit code.
int Shown(Terminal& terminal, const Outcome& outcome);

/// Places the job on this machine. `own_flags`: the command's, with "nproc".
Plan PlanHere(const Job& job, const Value& own_flags, Script& script, PlanOptions options = {});
/// Plans the job for a placement. If other processes start the rest of the ranks, no costs are
/// measured, since all of them must make the same plan.
Plan PlanOn(const Placement& placement, const Job& job, Script& script, PlanOptions options = {});

}  // namespace strata::launcher
