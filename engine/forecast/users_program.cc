#include "engine/forecast/users_program.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/schedule/checker.h"

namespace strata {
namespace {

using schedule::Program;

/// The rows of actions in the value that a schedule function returned.
std::vector<std::vector<std::string>> RowsOf(const Value& returned, const std::string& where) {
  const auto refuse = [&](const Value& value, const char* expected) {
    throw ConfigError(Str(where,
                          ": the schedule function must return CSV text, a row per rank, or ",
                          "a list of rows, each a list of actions such as \"0F0\"; expected ",
                          expected, ", got ", value.Describe()));
  };
  if (!returned.is_list()) refuse(returned, "one of them");
  std::vector<std::vector<std::string>> rows;
  for (const Value& row : returned.as_list()) {
    if (!row.is_list()) refuse(row, "a row");
    std::vector<std::string>& cells = rows.emplace_back();
    for (const Value& cell : row.as_list()) {
      if (!cell.is_string()) refuse(cell, "an action");
      cells.push_back(cell.as_string());
    }
  }
  return rows;
}

Program CallFunction(const Job& job, const schedule::ParseOptions& options, Script* script) {
  if (script == nullptr) throw ConfigError("schedule is a Lua function, but there is no script");
  const FunctionRef& function = job.schedule.function;
  const Value returned = script->Call(
      function, {options.ranks, std::max(job.stages_per_rank, 1), options.micro_batches});
  if (returned.is_string()) return schedule::ParseProgram(returned.as_string(), options);
  return schedule::ParseProgram(RowsOf(returned, function.where), options);
}

}  // namespace

bool IsUsers(const Job& job) {
  return job.schedule.name == "csv" || job.schedule.name == "function";
}

std::string PlaceOf(const Job& job) {
  return job.schedule.name == "csv" ? "the CSV file" : job.schedule.function.where;
}

schedule::Program UsersProgram(const Job& job, const Extent& extent, Script* script) {
  schedule::ParseOptions options;
  options.name = job.schedule.name;
  options.ranks = extent.ranks;
  options.micro_batches = extent.micro_batches;
  try {
    return job.schedule.name == "csv" ? schedule::ParseProgram(job.schedule.source, options)
                                      : CallFunction(job, options, script);
  } catch (const ConfigError& error) {
    throw ConfigError(Str("schedule of ", PlaceOf(job), ": ", error.what()));
  }
}

std::vector<int> UsersStageRanks(const Job& job, const Extent& extent, Script* script) {
  const Program program = UsersProgram(job, extent, script);
  try {
    schedule::CheckOrThrow(program);
  } catch (const ConfigError& error) {
    throw ConfigError(Str("schedule of ", PlaceOf(job), " for ", Plural(extent.ranks, "rank"),
                          " and ", extent.micro_batches, " micro-batches", ": ", error.what()));
  }
  if (!program.is_training) {
    throw ConfigError(Str("schedule of ", PlaceOf(job), " has no backwards; it cannot train"));
  }
  if (job.stages_per_rank > 1 && program.stages() != extent.ranks * job.stages_per_rank) {
    throw ConfigError(Str("schedule of ", PlaceOf(job), " has ", Plural(program.stages(), "stage"),
                          ", but pipe * stages_per_rank = ", extent.ranks, " * ",
                          job.stages_per_rank));
  }
  return program.stage_ranks;
}

}  // namespace strata
