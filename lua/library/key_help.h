// The help() texts of the keys of a job. Internal to lua/.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job_fields.h"

namespace strata::lua {

/// The tables of options that a job's key takes, each with the name that begins it ({"sgd", ...}):
/// one table for each type of the key, or a single one.
std::vector<OptionTable> TablesOf(const Field& key);
/// The names of these tables: {"sgd", "adam", ...}.
std::vector<std::string> NamesOf(const std::vector<OptionTable>& tables);
/// The strings that a field accepts; empty if it accepts any string, or none.
std::vector<std::string> ChoicesOf(const Field& field);
/// The help() text of a job's key: its line, and the tables that it takes.
std::string KeyHelp(const Field& key);

}  // namespace strata::lua
