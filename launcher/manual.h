// The program's help in other forms: as a manual page, and as a value for programs.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "launcher/command.h"

namespace strata::launcher {

/// The manual page strata(1) in roff's man macros: commands, their flags, keys of a job.
std::string ManualPage(const std::vector<Command>& commands);

/// The help as a value: {version, commands = [{name, usage, summary, details, flags, takes_job}],
/// exit_codes = [{code, means}], models, flags (the keys of a job that are flags)} and everything
/// in lua::Catalog(). Does not load the engine.
Value HelpValue(const std::vector<Command>& commands);

}  // namespace strata::launcher
