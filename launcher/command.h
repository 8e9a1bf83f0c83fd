// The commands of the strata binary: names, flags, help and functions; and Main(), which runs one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"

namespace strata::launcher {

/// A command such as `strata train`.
struct Command {
  std::string name;
  std::string usage;       ///< what follows the name: "SCRIPT [--flags]"
  std::string summary;     ///< one line
  std::string details;     ///< for its own help: a paragraph, without a newline at the end
  FieldTable flags = {};   ///< its own flags
  bool takes_job = false;  ///< it takes a script, and every key of the job as a flag
  /// Runs the command. `arguments` are those behind its name. Returns the exit code. Throws Error.
  int (*run)(const Command& command, const std::vector<std::string>& arguments) = nullptr;
};

/// All commands, in the order of the help.
const std::vector<Command>& Commands();

// One function for each command, in launcher/commands/.
Command TrainCommand();
Command PlanCommand();
Command ReplCommand();
Command VerifyCommand();
Command RunCommand();
Command DoctorCommand();
Command InspectCommand();
Command PredictCommand();
Command EvalCommand();
Command GenerateCommand();
Command ImportCommand();
Command ExportCommand();
Command WorkerCommand();
Command NewCommand();
Command TypesCommand();
Command CompletionCommand();

/// The keys of a job that can be given by a flag and that this build has.
FieldTable JobFlags();

/// Writes to standard output. Throws WorldError when that fails.
void Print(std::string_view text);

/// What the help begins with.
inline constexpr std::string_view kIntroduction =
    "Strata trains a network that a Lua script describes as a list of layers, cut into a pipeline "
    "of stages.";

/// The texts of `strata help` and of `strata help COMMAND`. manual.h has the others.
std::string GeneralHelp(const std::vector<Command>& commands);
std::string CommandHelp(const Command& command);

/// The whole program. Runs the command that the arguments (without the program's name) name, or
/// shows help. Errors go to standard error as "strata: TEXT". Returns the exit code: 0 = success, 1
/// = a WorldError, 2 = the command line or the script is wrong (ConfigError), others are the
/// command's.
int Main(const std::vector<Command>& commands, const std::vector<std::string>& arguments);

}  // namespace strata::launcher
