// TrainingJob: what rank 0 reports of a training.
#include "launcher/job/training_job.h"

#include "engine/picture/plan_picture.h"
#include "engine/runtime/interface/records.h"
#include "engine/runtime/interface/trainer.h"
#include "launcher/report/pictures.h"
#include "launcher/report/plan_report.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

/// Reports rank 0's training to the launcher.
class ReportingObserver : public TrainObserver {
 public:
  ReportingObserver(RankReporter& reporter, double bubble) : reporter_(reporter), bubble_(bubble) {}

  void OnStart(int64_t steps, const StartReport& start) override {
    reporter_.Send(StartMessage(steps, start));
  }
  void OnStep(const StepResult& result) override {
    reporter_.Send(StepMessage(StepRecord(result, bubble_)));
  }
  void OnNonFinite(const std::string& report) override {
    reporter_.Send(TextMessage("strata: " + report));
  }
  void OnSave(const SaveReport& report) override { reporter_.Send(SaveMessage(report)); }
  void OnEvalStart() override { reporter_.Send(EvalStartMessage()); }
  void OnEval(int64_t steps_done, const EvalResult& result, bool is_last) override {
    reporter_.Send(EvalMessage(EvalRecord(steps_done, result), is_last));
  }

 private:
  RankReporter& reporter_;
  double bubble_;
};

/// Of samples that are rows of tokens; else 0.
int64_t TokensPerSample(const Plan& plan) {
  const TensorSpec& input = plan.stages.front().input.front();
  return input.shape.size() == 2 && !IsFloating(input.dtype) ? input.shape[1] : 0;
}

}  // namespace

void TrainingJob::OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
                         Reporter& reporter) {
  const Forecast forecast = Predict(job, plan, &script);
  bubble_ = forecast.outlook.simulation.bubble;
  CheckTraceFiles(job, own_flags());
  if (WantsPictures(own_flags())) planned_ = picture::PlanPicture(job, plan, forecast.step);
  reporter.Send(HeaderMessage(PlanSummary(job, plan, forecast), processes,
                              {.log = job.log,
                               .goes_on = !job.resume.empty(),
                               .saves = !job.save.dir.empty(),
                               .takes_weights = !job.weights.from.empty(),
                               .tokens_per_sample = TokensPerSample(plan)}));
}

void TrainingJob::Work(const Job& job, Engine& engine, Script& script, int rank,
                       RankReporter& reporter) {
  ReportingObserver reporting(reporter, bubble_);
  TrainObserver silent;
  TrainObserver& observer = rank == 0 ? static_cast<TrainObserver&>(reporting) : silent;
  if (!Train(job, engine, observer, rank == 0 ? &script : nullptr)) reporter.Stopped();
  if (!job.trace.empty()) {
    const schedule::Trace trace = engine.TakeTrace();
    if (rank == 0) {
      reporter.Send(TextMessage(WriteTraceFiles(job, own_flags(), planned_, trace)));
    }
  }
  const std::string collectives = engine.CommReport();
  if (!collectives.empty())
    reporter.Send(TextMessage("communication of all ranks:\n" + collectives));
}

}  // namespace strata::launcher
