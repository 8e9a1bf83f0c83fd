#include "engine/schedule/job_program.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/schedule/generators.h"

namespace strata {
namespace {

schedule::Program FromText(const std::string& csv, const std::string& name, const Plan& plan,
                           int micro_batches) {
  schedule::ParseOptions options;
  options.name = name;
  options.ranks = plan.pipe();
  options.micro_batches = micro_batches;
  return schedule::ParseProgram(csv, options);
}

std::string CallForCsv(const Job& job, const Plan& plan, int micro_batches, Script* script) {
  if (script == nullptr) throw ConfigError("schedule is a Lua function, but there is no script");
  const Value csv =
      script->Call(job.schedule.function, {plan.pipe(), job.stages_per_rank, micro_batches});
  if (csv.is_string()) return csv.as_string();
  throw ConfigError(Str(job.schedule.function.where,
                        ": the schedule function must return CSV text, a row per rank; got ",
                        csv.Describe()));
}

}  // namespace

schedule::Program TrainingProgram(const Job& job, const Plan& plan, int micro_batches,
                                  Script* script) {
  const std::string& name = job.schedule.name;
  if (name == "csv") return FromText(job.schedule.source, "csv", plan, micro_batches);
  if (name == "function") {
    return FromText(CallForCsv(job, plan, micro_batches, script), "function", plan, micro_batches);
  }
  return schedule::Generate(name, {plan.pipe(), job.stages_per_rank, micro_batches});
}

schedule::Program EvaluationProgram(const Plan& plan, int micro_batches) {
  return schedule::EvaluationProgram(LoopMap(plan.pipe(), 1), micro_batches);
}

}  // namespace strata
