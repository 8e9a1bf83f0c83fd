#include "engine/schedule/job_program.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/plan/cut.h"
#include "engine/plan/recompute.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/generators.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/memory.h"
#include "engine/schedule/search.h"
#include "engine/schedule/step_costs.h"

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

schedule::Sizes SizesOf(const Job& job, const Extent& extent) {
  return {extent.ranks, job.stages_per_rank, extent.micro_batches};
}

/// A schedule that has a name, on the plan's ranks.
Program NamedProgram(const Job& job, const Plan& plan, const Extent& extent) {
  const schedule::Sizes sizes = SizesOf(job, extent);
  if (job.schedule.name != "auto") return schedule::Generate(job.schedule.name, sizes);
  schedule::SearchOptions options = AutoOptions(job, plan);
  options.stage_ranks = plan.stage_ranks();
  return Search(sizes, options).program;
}

/// The most micro-batches that are alive on each stage, and its slots.
std::vector<StageSetting> SettingsOf(const Program& program) {
  std::vector<StageSetting> settings(static_cast<size_t>(program.stages()));
  const std::vector<int> slots = schedule::StageBuffers(program);
  std::vector<int> alive(settings.size());
  for (size_t s = 0; s < settings.size(); ++s) settings[s] = {.live = 0, .slots = slots[s]};
  for (const auto& row : program.rows) {
    for (const schedule::Action& action : row) {
      for (const schedule::Action& part : schedule::Parts(action)) {
        const auto s = static_cast<size_t>(part.stage);
        if (part.kind == schedule::Kind::kForward) {
          settings[s].live = std::max(settings[s].live, ++alive[s]);
        } else if (schedule::GivesWeightGrad(part.kind)) {
          --alive[s];
        }
      }
    }
  }
  return settings;
}

/// Where the cuts should know what the schedule keeps alive. "auto" keeps what fits, at least as
/// 1F1B.
std::vector<StageSetting> PlanSettings(const Job& job, const Extent& extent, Script* script) {
  const bool matters = job.memory > 0 || job.partition.method == "memory";
  if (!matters || job.schedule.name == "auto") return {};
  if (IsUsers(job)) return SettingsOf(UsersProgram(job, extent, script));
  const schedule::Sizes sizes = SizesOf(job, extent);
  partition::CheckStages(int64_t{sizes.ranks} * sizes.stages_per_rank,
                         static_cast<int64_t>(job.layers.size()));
  return SettingsOf(schedule::Generate(job.schedule.name, sizes));
}

void CheckMemory(const Job& job, const Plan& plan, const Program& program) {
  if (plan.memory == 0) return;
  const std::vector<RankMemory> ranks = PredictMemory(job, plan, *plan.costs, program);
  for (const RankMemory& rank : ranks) {
    if (rank.total() <= plan.memory) continue;
    throw ConfigError(Str("memory: rank ", rank.rank, " would need ",
                          FormatBytes(static_cast<double>(rank.total())),
                          " of tensors with schedule ", program.name, ", the job allows ",
                          FormatBytes(static_cast<double>(plan.memory)),
                          "; partition = \"memory\", recompute, smaller micro-batches, ",
                          "schedule = \"auto\" or more ranks need less"));
  }
}

/// Measures at most once, however often the plan is made.
Measure Once(const Measure& measure) {
  if (!measure) return {};
  auto known = std::make_shared<std::optional<Profile>>();
  return [measure, known](const MeasureTask& task) {
    if (!*known) *known = measure(task);
    return **known;
  };
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

schedule::SearchOptions AutoOptions(const Job& job, const Plan& plan) {
  schedule::SearchOptions options;
  if (!plan.costs) return options;
  if (plan.costs->is_measured) {
    options.costs = StepCosts(job, plan, *plan.costs);
    for (size_t s = 0; s < plan.stages.size(); ++s) {  // R, which comes later, goes with I or B
      options.costs.input_grad[s] += options.costs.recompute[s];
    }
  }
  if (plan.memory == 0) return options;
  options.byte_limit = plan.memory;
  options.bytes = [&job, &plan](const Program& program) {
    Plan moved = plan;
    for (StagePlan& stage : moved.stages) {
      stage.rank = program.stage_ranks[static_cast<size_t>(stage.stage)];
    }
    return LargestTotal(PredictMemory(job, moved, *plan.costs,
                                      schedule::AddRecomputation(program, RecomputedStages(plan))));
  };
  return options;
}

Plan PlanJob(const Job& job, PlanOptions options, Script* script) {
  const Extent extent = {std::max(job.parallel.pipe, 1),
                         static_cast<int>(ResolveBatch(job.batch).micro_batches)};
  const schedule::Sizes sizes = SizesOf(job, extent);
  const bool is_auto = job.schedule.name == "auto";
  options.measure = Once(options.measure);
  if (IsUsers(job)) options.stage_ranks = UsersStageRanks(job, extent, script);
  if (is_auto) {
    partition::CheckStages(int64_t{extent.ranks} * job.stages_per_rank,
                           static_cast<int64_t>(job.layers.size()));
    options.stage_ranks = Search(sizes).program.stage_ranks;
  }
  options.settings = PlanSettings(job, extent, script);
  Plan plan = MakePlan(job, options, script);
  if (!IsUsers(job)) schedule::CheckSizes(job.schedule.name, sizes);
  if (is_auto && plan.costs) {
    const Program best = Search(sizes, AutoOptions(job, plan)).program;
    if (best.stage_ranks != plan.stage_ranks()) {
      options.stage_ranks = best.stage_ranks;
      plan = MakePlan(job, options, script);
    }
  }
  if (plan.memory > 0) {
    CheckMemory(job, plan, TrainingProgram(job, plan, extent.micro_batches, script));
  }
  return plan;
}

Program TrainingProgram(const Job& job, const Plan& plan, int micro_batches, Script* script) {
  const int planned = std::max(static_cast<int>(plan.batch.micro_batches), micro_batches);
  const Extent extent = {plan.pipe(), planned};
  Program program =
      IsUsers(job) ? UsersProgram(job, extent, script) : NamedProgram(job, plan, extent);
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
