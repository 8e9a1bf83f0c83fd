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

/// The path of a script. A single word such as "digits" is a model that comes with the program,
/// unless a file of that name exists. Throws ConfigError if there is neither.
std::string ScriptPath(const std::string& name);

/// The parts of "SCRIPT --flags". Short flags (-p 2) have their full names. The job keys of
/// --config are included; flags of the command line take precedence. The flags can be used for one
/// evaluation of the script.
struct ScriptArguments {
  std::string path;
  Flags flags;
};
/// Throws ConfigError if there is not exactly one script, or if a flag has an invalid value.
ScriptArguments ParseScriptArguments(const Command& command,
                                     const std::vector<std::string>& arguments);

/// The arguments with more flags, which override earlier ones; arguments after "--" stay after it.
std::vector<std::string> WithFlags(std::vector<std::string> arguments,
                                   const std::vector<std::string>& flags);

/// The flag --config=F.json, a file with job keys (config_file.h).
Field ConfigField();

/// "--script_timeout=20": the seconds that the script may take before the training.
Field ScriptTimeoutField();
/// "--allow_read=DIR": a folder that scripts may read besides their own; may be repeated.
Field AllowReadField();
/// The limits for evaluating a script with these flags of a command. Throws ConfigError if the
/// value of --allow_read was not parsed as a path.
lua::StateOptions StateOptionsOf(const Value& own_flags);
/// "--prepare_timeout=120": the seconds that everything before the start of the ranks may take.
Field PrepareTimeoutField();
/// `output`: where the job's listener writes.
SupervisorOptions SupervisorOptionsOf(const Value& own_flags, OutputQueue& output);

/// Shows the cause if the job failed; returns its exit code.
int Shown(Terminal& terminal, const Outcome& outcome);

/// `options` with the ranks and GPUs of this machine. `own_flags`: the command's, with "nproc".
PlanOptions OptionsHere(const Value& own_flags, PlanOptions options = {});
/// Plans the job for a placement. If other processes start the rest of the ranks, no costs are
/// measured, since all of them must make the same plan. The error of a plan that exceeds the job's
/// memory names the ways to make it fit.
Plan PlanOn(const Placement& placement, const Job& job, Script& script, PlanOptions options = {});

}  // namespace strata::launcher
