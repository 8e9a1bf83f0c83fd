// What help() says of the keys of a job. Internal to lua/.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job_fields.h"

namespace strata::lua {

/// The tables behind a key of a job, each with what begins it ({"sgd", ...}): those of its types,
/// of which one holds, or the only one.
std::vector<OptionTable> TablesOf(const Field& key);
/// What begins these tables: {"sgd", "adam", ...}.
std::vector<std::string> NamesOf(const std::vector<OptionTable>& tables);
/// What a string may say as the value of a field; empty where it may be any, or none.
std::vector<std::string> ChoicesOf(const Field& field);
/// What help() says of a key of a job: its line, and the tables that it takes.
std::string KeyHelp(const Field& key);

}  // namespace strata::lua
