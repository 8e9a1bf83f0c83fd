#include "engine/forecast/planned_program.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/forecast/memory_forecast.h"
#include "engine/forecast/step_costs.h"
#include "engine/forecast/users_program.h"
#include "engine/plan/recompute.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/program_search.h"

namespace strata {
namespace {

using schedule::Program;

/// The program of a schedule with a name, or a searched one ("auto"), on the plan's ranks.
Program NamedProgram(const Job& job, const Plan& plan, const Extent& extent) {
  const schedule::Sizes sizes = {extent.ranks, plan.stages_per_rank(), extent.micro_batches};
  if (plan.schedule != "auto") return schedule::Generate(plan.schedule, sizes);
  schedule::ProgramSearchOptions options = AutoOptions(job, plan);
  options.stage_ranks = plan.stage_ranks();
  return SearchProgram(sizes, options).program;
}

/// The program without the actions of micro-batches from `micro_batches` on.
Program Shortened(Program program, int micro_batches) {
  const auto is_left = [&](const schedule::Action& part) {
    return part.micro_batch < micro_batches;
  };
  for (auto& row : program.rows) {
    std::vector<schedule::Action> left;
    for (const schedule::Action& action : row) {
      const schedule::ActionParts parts(action);
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

schedule::ProgramSearchOptions AutoOptions(const Job& job, const Plan& plan) {
  schedule::ProgramSearchOptions options;
  if (!plan.costs) {
    options.memory = static_cast<int>(plan.program_memory);
    return options;
  }
  if (plan.costs->has_seconds()) {
    options.costs = StepCosts(job, plan, *plan.costs, LinksOfStages(plan));
    // R is only added later, so its time counts as part of I or B here.
    for (size_t s = 0; s < plan.stages.size(); ++s) {
      options.costs.input_grad[s] += options.costs.recompute[s];
    }
  }
  options.byte_limit = plan.memory > 0 ? plan.memory : plan.program_memory;
  if (options.byte_limit == 0) return options;
  if (plan.memory == 0) options.memory_weight = kMemoryWeight;
  std::vector<StageCost> stages = StageCosts(*plan.costs, plan);
  std::vector<RankMemory> lasting = LastingMemory(job, plan, *plan.costs, stages);
  std::vector<int64_t> missing;  // what each rank's limit is below the largest one
  for (int rank = 0; rank < plan.pipe() && plan.memory > 0; ++rank) {
    missing.push_back(plan.memory - plan.MemoryOf(rank));
  }
  options.bytes = [stages = std::move(stages), lasting = std::move(lasting),
                   missing = std::move(missing),
                   again = RecomputedStages(plan)](const Program& program) {
    int64_t most = 0;
    for (const RankMemory& rank :
         MemoryOfRows(lasting, stages, schedule::AddRecomputation(program, again))) {
      most = std::max(most, rank.total() + (missing.empty() ? 0 : missing[rank.rank]));
    }
    return most;
  };
  return options;
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
