// The loop of steps. After each step it reports the result, saves if due, evaluates if due and
// writes sample texts if due. A stop request or an evaluation may end the loop early.
#include "engine/runtime/trainer.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/runtime/records.h"
#include "engine/runtime/texts.h"

namespace strata {

int64_t StepsOf(const Job& job, int64_t per_epoch) {
  if (job.steps > 0 || per_epoch == 0) return job.steps;
  constexpr double kRounding = 1e-12;  // because 0.07 * 100 is slightly above 7
  constexpr double kMost = 1e15;       // a double represents each of them exactly
  const double steps = job.epochs * static_cast<double>(per_epoch);
  if (steps > kMost) {
    throw ConfigError(Str("epochs: expected at most ", kMost, " steps, got ", steps, " (",
                          per_epoch, " an epoch)"));
  }
  return std::max<int64_t>(1, std::llround(std::ceil(steps * (1 - kRounding))));
}

int64_t TotalSteps(const Job& job, int64_t per_epoch) {
  const int64_t steps = StepsOf(job, per_epoch);
  if (steps == 0) throw ConfigError("epochs: this data has no end; give steps instead");
  return steps;
}

namespace {

/// One training: its progress, and who is told of it.
class Training {
 public:
  Training(const Job& job, const Plan& plan, TrainEngine& engine, TrainObserver& observer,
           Script* script)
      : job_(job),
        engine_(engine),
        observer_(observer),
        script_(script),
        steps_(TotalSteps(job, engine.steps_per_epoch())),
        eval_every_(EverySteps(job.eval.every, engine.steps_per_epoch())),
        done_(engine.start().step),
        samples_(SamplesOf(job, plan)) {}

  bool Run() {
    const bool has_ended = RunSteps();
    if (!failed_.empty()) throw WorldError(failed_);
    return has_ended;
  }

 private:
  /// How the training continues after an evaluation. kStopped: RequestStop() ended the evaluation
  /// early; the training ends, and the evaluation is still due when it resumes.
  enum class After { kGoOn, kOver, kStopped };

  bool RunSteps() {
    const int64_t first = done_;
    const StartReport start = Start();
    observer_.OnStart(steps_, start);
    if (!start.why_over.empty()) return true;
    if (done_ > 0 && done_ < steps_) {
      const After after = start.owes_evaluation ? Evaluate() : After::kGoOn;
      if (after == After::kStopped) return false;
      if (after == After::kOver || owes_samples()) WriteSamples();
      if (after == After::kOver) {
        Save();
        return true;
      }
    }
    while (done_ < steps_) {
      const StepResult result = engine_.TrainStep();
      if (!result.is_taken) {
        if (result.nonfinite->has_finite_weights && done_ > first) Save();
        result.CheckTaken();
      }
      ++done_;
      Report(result);
      if (done_ == steps_ || result.stop) {
        Save();
      } else if (result.owes_save) {
        observer_.OnSave(engine_.FinishSave());
      }
      if (result.stop) {
        ReportEpoch();
        return false;
      }
      const bool is_due = eval_every_ > 0 && done_ % eval_every_ == 0;
      const After after = done_ < steps_ && is_due ? Evaluate() : After::kGoOn;
      if (after == After::kStopped) {
        Save();
        ReportEpoch();
        return false;
      }
      const bool is_over = after == After::kOver;
      if (done_ < steps_ && (is_over || owes_samples())) WriteSamples();
      ReportEpoch();
      if (is_over) {
        Save();
        return true;
      }
    }
    if (Evaluate() == After::kStopped) return false;
    WriteSamples();
    return true;
  }

  /// What the training started from, completed for the observer.
  StartReport Start() const {
    StartReport start = engine_.start();
    const bool is_done = done_ >= steps_, is_over = !start.why_over.empty();
    start.owes_evaluation =
        !job_.test_data.kind.empty() && !is_over && (is_done || start.owes_evaluation);
    start.owes_samples = samples_ && !is_over && (is_done || (done_ > 0 && owes_samples()));
    if (is_over) {
      start.notes.push_back(Str("it has ", start.why_over, "; more patience goes on"));
    } else if (is_done) {
      start.notes.push_back(Str("no step is left: the training has ", Plural(steps_, "step")));
    }
    return start;
  }

  /// `record`: makes the argument of the function; called only if there is a function.
  template <class Record>
  void Call(const FunctionRef& function, const Record& record) {
    if (script_ && function.id >= 0) script_->CallInTraining(function, {record()});
  }

  void Report(const StepResult& result) {
    if (result.nonfinite && !result.nonfinite->report.empty()) {
      observer_.OnNonFinite(result.nonfinite->report);
    }
    observer_.OnStep(result);
    Call(job_.callbacks.on_step, [&] { return StepRecord(result, {}, job_.layers); });
    if (result.save) observer_.OnSave(*result.save);
    if (result.recut) observer_.OnRecut(*result.recut);
  }

  void ReportEpoch() {
    const int64_t per_epoch = engine_.steps_per_epoch();
    if (per_epoch == 0 || done_ % per_epoch != 0) return;
    Call(job_.callbacks.on_epoch, [&] {
      return Value::MakeMap({{"epoch", done_ / per_epoch}, {"step", done_}});
    });
  }

  After Evaluate() {
    if (job_.test_data.kind.empty()) return After::kGoOn;
    observer_.OnEvalStart();
    const EvalResult result = engine_.EvaluateTestData();
    if (result.stop) return After::kStopped;
    const bool is_last = done_ >= steps_ || result.ends_training();
    observer_.OnEval(done_, result, is_last);
    Call(job_.callbacks.on_eval, [&] { return EvalRecord(done_, result); });
    if (result.is_best) SaveBest(is_last);
    return result.ends_training() ? After::kOver : After::kGoOn;
  }

  bool owes_samples() const {
    const int64_t every = job_.eval.samples.every > 0 ? job_.eval.samples.every : eval_every_;
    return every > 0 && done_ % every == 0;
  }

  void WriteSamples() {
    if (!samples_) return;
    observer_.OnSamplesStart();
    std::string note;
    samples_->Write(
        engine_, [&](const TextReport& report) { note = report.note; },
        [](size_t, const std::string&, bool) {});
    observer_.OnSamples(done_, samples_->texts(), note);
  }

  /// Saves the best. If it fails the training goes on, because a later evaluation may be saved
  /// instead; only at the last evaluation is the failure an error.
  void SaveBest(bool is_last) {
    const SaveReport report = engine_.SaveBest();
    if (!is_last || report.error.empty()) return observer_.OnSave(report);
    failed_ = Str("the best save of step ", report.step, " failed: ", report.error);
  }

  void Save() {
    if (!job_.save.dir.empty()) observer_.OnSave(engine_.Save());
  }

  const Job& job_;
  TrainEngine& engine_;
  TrainObserver& observer_;
  Script* const script_;
  const int64_t steps_;
  const int64_t eval_every_;  // steps between two evaluations; 0 means only at the end
  int64_t done_;
  const std::unique_ptr<Texts> samples_;  // null if the job has no eval.samples
  // The error to throw when everything else is done.
  std::string failed_;
};

}  // namespace

bool Train(const Job& job, const Plan& plan, TrainEngine& engine, TrainObserver& observer,
           Script* script) {
  return Training(job, plan, engine, observer, script).Run();
}

}  // namespace strata
