// The command `strata verify SCRIPT`, which checks that a plan trains exactly as a single stage
// does.

#include <algorithm>
#include <optional>
#include <string>

#include "engine/base/machine/cores.h"
#include "engine/base/text.h"
#include "engine/forecast/planned_program.h"
#include "launcher/command.h"
#include "launcher/commands/rank_job.h"
#include "launcher/commands/run_recorder.h"
#include "launcher/commands/script_job.h"
#include "launcher/process/supervisor.h"
#include "launcher/terminal/terminal.h"

namespace strata::launcher {
namespace {

using Arguments = std::vector<std::string>;

/// The largest relative difference between sums with different orders of addition, for layers that
/// compute in `type`.
std::string RoundingOf(DType type) {
  if (type == DType::kBFloat16) return "1e-2";
  return type == DType::kFloat16 ? "2e-3" : "1e-6";
}

/// A training that reports all its losses, gradients and parameters.
class VerifiedJob : public RankJob {
 public:
  using RankJob::RankJob;

 protected:
  /// Both runs start from the same values, and neither writes files.
  void Change(Job& job) const override {
    job.save = {};
    job.resume.clear();
    job.trace.clear();
  }

  void OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
              Reporter& reporter) override {
    const int replicas = plan.topology.Size(kDataAxis);
    const int sharing = plan.topology.Size(kModelAxis);
    const std::string data = replicas > 1 ? Str(", data ", replicas) : "";
    const std::string model = sharing > 1 ? Str(", model ", sharing) : "";
    const int micro_batches = static_cast<int>(plan.batch.micro_batches);
    const bool in_order =
        schedule::AccumulatesInOrder(TrainingProgram(job, plan, micro_batches, &script));
    reporter.Send(PlannedMessage(
        {.name = Str("pipe ", plan.pipe(), data, model, ", ", plan.schedule, ", ", plan.transport),
         .steps = job.steps,
         .ranks = plan.topology.world_size(),
         .replicas = replicas,
         .sharing = sharing,
         .processes = processes,
         .threads = job.threads,
         .in_order = in_order,
         .device = plan.device,
         .unordered = plan.unordered,
         .rounding = RoundingOf(job.precision.compute)}));
  }

  void Work(const Job& job, Engine& engine, Script&, int rank, RankReporter& reporter) override {
    engine.set_record_gradients(true);
    for (int64_t step = 0; step < job.steps; ++step) {
      const StepResult result = engine.TrainStep();
      result.CheckTaken();
      if (rank == 0) reporter.Send(VerifiedStepMessage(result));
    }
    const std::vector<TensorDigest> parameters = engine.Parameters();
    if (rank == 0) reporter.Send(ParametersMessage(parameters));
  }
};

Arguments Joined(Arguments first, const Arguments& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

/// The number of threads per rank in the verified run. Results depend on it bit by bit, so the
/// other run gets the same number.
int ThreadsPerRank(const PlannedRun& run) {
  if (run.threads > 0) return run.threads;
  return std::max(1, MachineCores() / run.ranks);
}

/// The flags that run any job as one stage with the same number of replicas. With Gloo the plan
/// uses the CPU even if there are GPUs, so the device of the first plan is given to the second run
/// too.
Arguments OneStage(const PlannedRun& run) {
  return {Str("--nproc=", run.replicas),
          Str("--data=", run.replicas),
          "--pipe=1",
          "--model=1",
          "--partition=uniform",
          "--schedule=1f1b",
          "--stages_per_rank=1",
          "--recompute=false",
          "--memory=none",
          "--ranks=none",
          "--costs=none",
          "--transport=threads",
          Str("--device=", run.device),
          Str("--threads=", ThreadsPerRank(run))};
}

/// Runs the job and records it. If the job fails, shows the cause. Returns the exit code.
int Record(const Command& command, const Arguments& arguments, RunRecorder& recorder,
           Terminal& terminal) {
  const Value own = ParseScriptArguments(command, arguments).flags.own();
  const Placement placement = PlacementHere(own);
  CheckIsWhole(placement, "strata verify");
  VerifiedJob job(command, arguments, placement);
  return Shown(terminal, Supervise(job, recorder, SupervisorOptionsOf(own, terminal.output())));
}

/// The reason why the plan adds in another order than one stage; null if it does not.
const char* OtherOrder(const PlannedRun& planned) {
  if (planned.sharing > 1) return "ranks that share layers add up in parts";
  if (planned.in_order) return nullptr;
  return "this schedule adds gradients up in another order than that of the micro-batches";
}

/// Compares the two runs and shows the result; returns the exit code. Ranks that share layers add
/// their products in parts, so gradients differ by rounding. Then parameters are not compared,
/// because for a gradient that is only rounding error Adam still makes a full step.
int Judge(const PlannedRun& planned, RunRecord piped, RunRecord single, Terminal& terminal) {
  const bool shared = planned.sharing > 1;
  std::string compared = ", losses and norms of gradients";
  if (shared) {
    piped.parameters.clear();
    single.parameters.clear();
  } else {
    compared = Str(", losses, gradients and parameters (",
                   Plural(static_cast<int64_t>(piped.parameters.size()), "tensor"), ")");
  }
  const std::string subject = Str(piped.name, " and ", single.name);
  const char* const why = OtherOrder(planned);
  const double tolerance = why ? std::stod(planned.rounding) : 0;
  const std::string difference = FirstDifference(piped, single, tolerance);
  if (!difference.empty()) {
    terminal.Line(Str("DIFFERENT: ", subject, "\n", difference));
    if (!planned.unordered.empty()) {
      terminal.Line(Str("gradients of ", planned.unordered,
                        " are added up in any order on a GPU, in two runs of one plan, too"));
    }
    return 1;
  }
  const std::string equal =
      why ? Str("equal within ", planned.rounding, " (", why, "): ") : "equal bit for bit: ";
  terminal.Line(Str(equal, subject, "; ", Plural(static_cast<int64_t>(piped.steps.size()), "step"),
                    compared));
  return 0;
}

int Run(const Command& command, const Arguments& given) {
  Terminal terminal;
  const Arguments arguments = Joined({"--steps=3", "--losses"}, given);
  RunRecorder piped(terminal);
  if (const int code = Record(command, arguments, piped, terminal); code != 0) return code;
  const Arguments one_stage = WithFlags(arguments, OneStage(piped.planned()));
  RunRecorder single(terminal);
  if (const int code = Record(command, one_stage, single, terminal); code != 0) return code;
  return Judge(piped.planned(), piped.record(), single.record(), terminal);
}

}  // namespace

Command VerifyCommand() {
  return {.name = "verify",
          .usage = "SCRIPT [--flags]",
          .summary = "compares a plan's training with that of one stage, bit for bit",
          .details =
              "Trains a few steps (--steps, 3 by default) with this plan, then with pipe=1 in one\n"
              "process (and as many replicas), and compares every loss, gradient and parameter.\n"
              "Names the first difference and exits with 1 when there is one. With a model axis\n"
              "it compares with model=1, losses and norms of gradients within 1e-6 (fp16 2e-3,\n"
              "bf16 1e-2).",
          .flags = {NprocField(), ConfigField(), ScriptTimeoutField(), AllowReadField(),
                    PrepareTimeoutField()},
          .takes_job = true,
          .run = &Run};
}

}  // namespace strata::launcher
