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
  std::string summary;     ///< one line for the list of commands
  std::string details;     ///< a paragraph for the command's help, without a final newline
  FieldTable flags = {};   ///< its own flags
  bool takes_job = false;  ///< true if it takes a script, and every key of the job as a flag
  /// Runs the command. `arguments` are those after its name. Returns the exit code. Throws Error.
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

/// The keys of a job that this build supports as flags.
FieldTable JobFlags();

/// Writes to standard output. Throws WorldError if that fails.
void Print(std::string_view text);

/// The first sentence of the help.
inline constexpr std::string_view kIntroduction =
    "Strata trains a network that a Lua script describes as a list of layers, cut into a pipeline "
    "of stages.";

/// The texts of `strata help` and of `strata help COMMAND`; manual.h makes the other forms.
std::string GeneralHelp(const std::vector<Command>& commands);
std::string CommandHelp(const Command& command);

/// The whole program: runs the command that the arguments (without the program's name) name, or
/// shows help. Errors go to standard error as "strata: TEXT". Returns the exit code: 0 = success, 1
/// = a WorldError, 2 = an incorrect command line or script (ConfigError); other codes come from the
/// command.
int Main(const std::vector<Command>& commands, const std::vector<std::string>& arguments);

}  // namespace strata::launcher
