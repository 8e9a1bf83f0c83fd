// TrainingJob: plans a training in the starter, and reports it from rank 0.
#include "launcher/commands/training_job.h"

#include <algorithm>
#include <filesystem>
#include <future>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/picture/plan_picture.h"
#include "engine/runtime/records.h"
#include "engine/runtime/texts.h"
#include "engine/runtime/trainer.h"
#include "engine/runtime/watch/stragglers.h"
#include "launcher/report/output_files.h"
#include "launcher/report/pictures.h"
#include "launcher/report/plan_report.h"
#include "launcher/report/train_report.h"
#include "launcher/version.h"
#include "lua/host/measure.h"

namespace strata::launcher {
namespace {

/// Stores the measured seconds of a training's layers for later plans, in the background.
class RunMemory {
 public:
  /// `is_alone`: RankJob::is_alone(). `program`: the plan's, not lowered. All references must
  /// outlive this object.
  RunMemory(const Job& job, const Plan& plan, const schedule::Program& program, bool is_alone)
      : job_(job), plan_(plan), program_(program), is_wanted_(is_alone) {}

  /// Call if a rank is slow for external reasons; then its seconds say nothing about its layers.
  void Forbid() { is_wanted_ = false; }
  void Keep(const MeasuredStep& step) {
    if (!std::exchange(is_wanted_, false)) return;
    writes_ = std::async(std::launch::async,
                         [this, step] { lua::RememberRun(job_, plan_, program_, step); });
  }

 private:
  const Job& job_;
  const Plan& plan_;
  const schedule::Program& program_;
  bool is_wanted_;
  std::future<void> writes_;  // the destructor waits for it
};

/// Reports rank 0's training to the launcher.
class ReportingObserver : public TrainObserver {
 public:
  ReportingObserver(RankReporter& reporter, const Job& job, double bubble, std::vector<int> work,
                    RunMemory memory)
      : reporter_(reporter),
        layers_(job.layers),
        bubble_(bubble),
        stragglers_(std::move(work)),
        memory_(std::move(memory)) {}

  void OnStart(int64_t steps, const StartReport& start) override {
    reporter_.Send(StartMessage(steps, start));
  }
  void OnStep(const StepResult& result) override {
    Value record = StepRecord(result, bubble_, layers_);
    const std::vector<Straggler> slow = stragglers_.Add(result.busy_seconds);
    Value named;
    for (const auto& [rank, factor] : slow) named.Set(std::to_string(rank), factor);
    if (!slow.empty()) record.Set("stragglers", named);
    if (!slow.empty()) memory_.Forbid();
    if (result.measured) memory_.Keep(*result.measured);
    if (result.recut) stragglers_.Forget();
    reporter_.Send(StepMessage(record));
    for (const Value& part : HistogramsRecords(result)) reporter_.Send(HistogramsMessage(part));
  }
  void OnNonFinite(const std::string& report) override {
    reporter_.Send(TextMessage("strata: " + report));
  }
  void OnRecut(const RecutReport& report) override {
    reporter_.Send(TextMessage("strata: " + RecutText(report)));
  }
  void OnSave(const SaveReport& report) override { reporter_.Send(SaveMessage(report)); }
  void OnEvalStart() override { reporter_.Send(EvalStartMessage()); }
  void OnEval(int64_t steps_done, const EvalResult& result, bool is_last) override {
    reporter_.Send(EvalMessage(EvalRecord(steps_done, result), is_last));
    if (result.ends_training()) reporter_.Send(TextMessage("strata: " + result.why_stopped));
  }
  void OnSamplesStart() override { reporter_.Send(SamplesStartMessage()); }
  void OnSamples(int64_t steps_done, const std::vector<std::string>& texts,
                 const std::string& note) override {
    reporter_.Send(SamplesMessage(SamplesRecord(steps_done, texts), note));
  }

 private:
  RankReporter& reporter_;
  const std::vector<LayerSpec> layers_;
  double bubble_;
  Stragglers stragglers_;
  RunMemory memory_;
};

/// A number for each rank that is equal for ranks with the same work, that is the same stages and
/// the same part of the model axis.
std::vector<int> WorkOfRanks(const Plan& plan) {
  std::vector<int> work;
  for (int rank = 0; rank < plan.topology.world_size(); ++rank) {
    const bool shared = plan.topology.Has(kModelAxis);
    work.push_back(plan.topology.Index(rank, kPipeAxis) *
                       std::max(1, plan.topology.Size(kModelAxis)) +
                   (shared ? plan.topology.Index(rank, kModelAxis) : 0));
  }
  return work;
}

/// The floating-point operations of forward and backward for one sample. Recomputation does not
/// count.
double FlopsOfSample(const Plan& plan, const StepForecast& step) {
  double flops = 0;
  for (const StageCost& stage : step.stages) {
    flops += stage.forward.flops + stage.input_grad.flops + stage.weight_grad.flops;
  }
  const double parts = std::max(1, plan.topology.Size(kModelAxis));
  return flops * parts / static_cast<double>(plan.batch.micro_batch_size);
}

/// The operations per second of all ranks if they ran at the pace of the fastest layer. 0: nothing
/// was measured.
double PeakFlops(const Plan& plan, const ModelCosts& costs) {
  return costs.is_measured() ? FastestFlops(costs) * plan.topology.world_size() : 0;
}

/// The folder for what a job writes: that of its saves, else that of its log; "" if it has neither.
std::string FolderOf(const Job& job) {
  if (!job.save.dir.empty() || job.log.empty()) return job.save.dir;
  const std::string folder = std::filesystem::path(job.log).parent_path().string();
  return folder.empty() ? "." : folder;
}

/// The training as the log describes it: how it is placed, and the keys of its job. What may be
/// long, the layers and given costs, is left out.
Value RunValue(const Job& job, const Plan& plan, const std::string& schedule) {
  Value keys = job.ToValue(), placed;
  for (const char* key : {"layers", "costs", "links"}) keys.Erase(key);
  for (const std::string_view axis : {kPipeAxis, kDataAxis, kModelAxis}) {
    if (plan.topology.Has(axis)) placed.Set(axis, plan.topology.Size(axis));
  }
  placed.Set("schedule", schedule).Set("micro_batches", plan.batch.micro_batches);
  return Value::MakeMap({{"name", job.name},
                         {"program", kVersion},
                         {"ranks", plan.topology.world_size()},
                         {"plan", placed},
                         {"job", keys}});
}

/// The tokens of a sample, if samples are rows of tokens; else 0.
int64_t TokensPerSample(const Plan& plan) {
  const TensorSpec& input = plan.stages.front().input.front();
  return input.shape.size() == 2 && !IsFloating(input.dtype) ? input.shape[1] : 0;
}

/// Throws ConfigError if histograms are computed but no output takes them.
void CheckHistograms(const Job& job, const Value& own_flags) {
  if (job.histograms == 0 || !job.log.empty() || own_flags["tensorboard"].is_string()) return;
  throw ConfigError(Str("histograms = ", job.histograms,
                        ": no file takes them; --tensorboard=DIR shows them, --log=F keeps them"));
}

}  // namespace

void TrainingJob::OnJob(const Job& job, Reporter& reporter) {
  reporter.Send(JobMessage(!job.resume.empty()));
}

void TrainingJob::OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
                         Reporter& reporter) {
  SamplesOf(job, plan);  // throws before a rank starts if the model cannot write texts
  const Forecast forecast = ForecastPlan(job, plan, &script);
  bubble_ = forecast.outlook.simulation.bubble;
  work_ = WorkOfRanks(plan);
  program_ = forecast.step.program;
  Value outputs = own_flags();
  CheckOutputs(outputs.Set("log", job.log).Set("trace", job.trace));
  CheckTraceFiles(job, own_flags());
  CheckHistograms(job, own_flags());
  if (WantsPictures(own_flags())) planned_ = picture::PlanPicture(job, plan, forecast.step);
  reporter.Send(HeaderMessage(PlanSummary(job, plan, forecast), processes,
                              {.log = job.log,
                               .goes_on = !job.resume.empty(),
                               .save_dir = job.save.dir,
                               .folder = FolderOf(job),
                               .takes_weights = !job.weights.from.empty(),
                               .tokens_per_sample = TokensPerSample(plan),
                               .sample_flops = FlopsOfSample(plan, forecast.step),
                               .peak_flops = PeakFlops(plan, forecast.step.costs),
                               .run = RunValue(job, plan, forecast.step.program.name)}));
}

void TrainingJob::Work(const Job& job, Engine& engine, Script& script, int rank,
                       RankReporter& reporter) {
  ReportingObserver reporting(reporter, job, bubble_, work_,
                              RunMemory(job, plan(), program_, is_alone()));
  TrainObserver silent;
  TrainObserver& observer = rank == 0 ? static_cast<TrainObserver&>(reporting) : silent;
  if (!Train(job, plan(), engine, observer, rank == 0 ? &script : nullptr)) reporter.Stopped();
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
