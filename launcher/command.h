// Commands of the strata binary: what each is called, takes and does.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/fields.h"

namespace strata::launcher {

struct Command {
  std::string name;
  std::string usage;       ///< behind the name: "SCRIPT [--flags]"
  std::string summary;     ///< one line
  std::string details;     ///< for its own help: paragraphs, without a newline at the end
  FieldTable flags = {};   ///< its own flags
  bool takes_job = false;  ///< takes a script and, as flags, every key of its job
  /// Does it; the arguments are those behind its name. Returns the exit code. Throws Error.
  int (*run)(const Command& command, const std::vector<std::string>& arguments) = nullptr;
};

/// All commands, in the order of the help.
const std::vector<Command>& Commands();

// One file each.
Command TrainCommand();
Command PlanCommand();
Command ReplCommand();
Command VerifyCommand();
Command RunCommand();
Command DoctorCommand();
Command InspectCommand();
Command WorkerCommand();

/// What `strata help` shows, and `strata help COMMAND`.
std::string GeneralHelp(const std::vector<Command>& commands);
std::string CommandHelp(const Command& command);

/// The whole program: runs the command that the arguments (without the program's name) ask for, or
/// shows help; errors go to standard error as "strata: TEXT". Returns the exit code: 0; 1 the world
/// failed; 2 the command line or the script is wrong; others from the command.
int Main(const std::vector<Command>& commands, const std::vector<std::string>& arguments);

}  // namespace strata::launcher
