#include "engine/schedule/job_program.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/cut.h"
#include "engine/plan/recompute.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/search.h"

namespace strata {
namespace {

using schedule::Program;

/// How many ranks and micro-batches a program is for.
struct Extent {
  int ranks = 1;
  int micro_batches = 1;
};

/// The rows of actions that a function returned.
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
  const Value returned =
      script->Call(function, {options.ranks, job.stages_per_rank, options.micro_batches});
  if (returned.is_string()) return schedule::ParseProgram(returned.as_string(), options);
  return schedule::ParseProgram(RowsOf(returned, function.where), options);
}

bool IsUsers(const Job& job) {
  return job.schedule.name == "csv" || job.schedule.name == "function";
}

/// What errors call a user's schedule.
std::string PlaceOf(const Job& job) {
  return job.schedule.name == "csv" ? "the CSV file" : job.schedule.function.where;
}

/// The user's program, parsed and no more.
Program UsersProgram(const Job& job, const Extent& extent, Script* script) {
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

/// The map of the user's program, which must be right for it to mean anything.
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

/// A schedule that has a name, on these ranks where that is open.
Program NamedProgram(const Job& job, const Extent& extent, std::vector<int> stage_ranks = {}) {
  const schedule::Sizes sizes = {extent.ranks, job.stages_per_rank, extent.micro_batches};
  if (job.schedule.name != "auto") return schedule::Generate(job.schedule.name, sizes);
  return Search(sizes, {.stage_ranks = std::move(stage_ranks)}).program;
}

/// The actions of `program` on its first micro-batches.
Program Shortened(Program program, int micro_batches) {
  const auto is_left = [&](const schedule::Action& part) {
    return part.micro_batch < micro_batches;
  };
  for (auto& row : program.rows) {
    std::vector<schedule::Action> left;
    for (const schedule::Action& action : row) {
      const schedule::Parts parts(action);
      if (std::all_of(parts.begin(), parts.end(), is_left)) {
        left.push_back(action);
      } else {
        std::copy_if(parts.begin(), parts.end(), std::back_inserter(left), is_left);
      }
    }
    row = std::move(left);
  }
  program.micro_batches = micro_batches;
  return program;
}

}  // namespace

Plan PlanJob(const Job& job, PlanOptions options, Script* script) {
  const Extent extent = {std::max(job.parallel.pipe, 1),
                         static_cast<int>(ResolveBatch(job.batch).micro_batches)};
  if (IsUsers(job)) options.stage_ranks = UsersStageRanks(job, extent, script);
  if (job.schedule.name == "auto") {
    partition::CheckStages(int64_t{extent.ranks} * job.stages_per_rank,
                           static_cast<int64_t>(job.layers.size()));
    options.stage_ranks = NamedProgram(job, extent).stage_ranks;
  }
  Plan plan = MakePlan(job, options, script);
  if (!IsUsers(job)) {
    schedule::CheckSizes(job.schedule.name,
                         {plan.pipe(), job.stages_per_rank, extent.micro_batches});
  }
  return plan;
}

Program TrainingProgram(const Job& job, const Plan& plan, int micro_batches, Script* script) {
  const int planned = std::max(static_cast<int>(plan.batch.micro_batches), micro_batches);
  const Extent extent = {plan.pipe(), planned};
  Program program = IsUsers(job) ? UsersProgram(job, extent, script)
                                 : NamedProgram(job, extent, plan.stage_ranks());
  if (program.stage_ranks != plan.stage_ranks()) {
    throw ConfigError(Str("schedule of ", PlaceOf(job), " for ", planned,
                          " micro-batches has its stages on ranks ",
                          Join(program.stage_ranks, ", "), "; the plan, for ",
                          plan.batch.micro_batches, ", on ", Join(plan.stage_ranks(), ", ")));
  }
  if (planned != micro_batches) program = Shortened(std::move(program), micro_batches);
  return schedule::AddRecomputation(std::move(program), RecomputedStages(plan));
}

Program EvaluationProgram(const Plan& plan, int micro_batches) {
  return schedule::EvaluationProgram(plan.stage_ranks(), micro_batches);
}

}  // namespace strata
