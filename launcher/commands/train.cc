// strata train SCRIPT: trains, and shows how it goes.
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "launcher/command.h"
#include "launcher/plan_report.h"
#include "launcher/process/supervisor.h"
#include "launcher/rank_job.h"
#include "launcher/records.h"
#include "launcher/script_job.h"
#include "launcher/train_report.h"
#include "launcher/trainer.h"

namespace strata::launcher {
namespace {

/// Rank 0's way to the launcher.
class ReportingObserver : public TrainObserver {
 public:
  ReportingObserver(RankReporter& reporter, double bubble) : reporter_(reporter), bubble_(bubble) {}

  void OnStart(int64_t steps) override { reporter_.Send(StartMessage(steps)); }
  void OnStep(const StepResult& result) override {
    reporter_.Send(StepMessage(StepRecord(result, bubble_)));
  }
  void OnEvalStart() override { reporter_.Send(EvalStartMessage()); }
  void OnEval(int64_t steps_done, const EvalResult& result, bool is_last) override {
    reporter_.Send(EvalMessage(EvalRecord(steps_done, result), is_last));
  }

 private:
  RankReporter& reporter_;
  double bubble_;
};

class TrainingJob : public RankJob {
 public:
  using RankJob::RankJob;

 protected:
  void OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
              Reporter& reporter) override {
    const Forecast forecast = Predict(job, plan, &script);
    bubble_ = forecast.simulation.bubble;
    reporter.Send(HeaderMessage(PlanSummary(job, plan, forecast), processes, job.log));
  }

  void Work(const Job& job, Engine& engine, int rank, RankReporter& reporter) override {
    ReportingObserver reporting(reporter, bubble_);
    TrainObserver silent;
    Train(job, engine, rank == 0 ? static_cast<TrainObserver&>(reporting) : silent);
    const std::string collectives = engine.CommReport();
    if (!collectives.empty()) reporter.Send(TextMessage("collectives of rank 0:\n" + collectives));
  }

 private:
  double bubble_ = 0;
};

int Run(const Command& command, const std::vector<std::string>& arguments) {
  const Value own = ParseScriptArguments(command, arguments).flags.own();
  if (own["verbose"].as_bool()) InitLogging(LogLevel::kInfo, "");
  Terminal terminal;
  TrainReport report(terminal, own["print_every"].as_int());
  TrainingJob job(command, arguments);
  const Outcome outcome = Supervise(job, report);
  terminal.ClearStatus();
  if (!outcome.cause.empty()) terminal.ErrorLine("strata: " + outcome.cause);
  return outcome.exit_code;
}

}  // namespace

Command TrainCommand() {
  return {.name = "train",
          .usage = "SCRIPT [--flags]",
          .summary = "trains the model that a script describes",
          .details =
              "Starts the ranks on this machine (as many as --nproc says, or the product of the\n"
              "degrees), trains, and evaluates the test data at the end. Ctrl-C ends everything.",
          .flags = {NprocField(),
                    Field::Int("print_every", "steps between two lines; 0 = about fifty lines")
                        .AtLeast(0)
                        .Default(0),
                    Field::Bool("verbose", "shows the engine's own log").Default(false)},
          .takes_job = true,
          .run = &Run};
}

}  // namespace strata::launcher
