// Train(): the loop of steps and evaluations, which every rank runs with any kind of engine.
#pragma once

#include <cstdint>
#include <string>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine.h"

namespace strata {

/// Receives the events of a training. Every rank makes the same calls. The default methods do
/// nothing.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// Before the first step. `steps`: the length of the whole training, with the steps done before.
  virtual void OnStart(int64_t /*steps*/, const StartReport& /*start*/) {}
  virtual void OnStep(const StepResult& /*result*/) {}
  /// Before OnStep() of a step whose loss or gradients are not finite, if the step was taken.
  virtual void OnNonFinite(const std::string& /*report*/) {}
  /// After layers have moved to other ranks (job.rebalance).
  virtual void OnRecut(const RecutReport& /*report*/) {}
  /// After a save has ended, successfully or not.
  virtual void OnSave(const SaveReport& /*report*/) {}
  virtual void OnEvalStart() {}
  /// After an evaluation, when `steps_done` steps have been done. `is_last`: it is the last one.
  virtual void OnEval(int64_t /*steps_done*/, const EvalResult& /*result*/, bool /*is_last*/) {}
  virtual void OnSamplesStart() {}
  /// The texts of job.eval.samples after `steps_done` steps. `note`: why keys and values are not
  /// kept; "" if they are.
  virtual void OnSamples(int64_t /*steps_done*/, const std::vector<std::string>& /*texts*/,
                         const std::string& /*note*/) {}
};

/// The number of steps of the whole training: job.steps, or the steps of job.epochs passes of
/// `per_epoch` steps each, rounded up, at least one. 0 if the job has epochs and its data have no
/// end (`per_epoch` is 0).
int64_t StepsOf(const Job& job, int64_t per_epoch);
/// The same, but throws ConfigError for epochs of data without end.
int64_t TotalSteps(const Job& job, int64_t per_epoch);

/// Trains the remaining steps. All ranks call it together, as they call the engine. Returns false
/// if the training was ended by RequestStop().
/// - data.test is evaluated after every job.eval.every steps, and at the end.
/// - The texts of job.eval.samples are written after evaluations, or after every so many steps, and
///   at the end. A training that resumes after such a step writes them again.
/// - An evaluation may end the training (job.stop), or be the best so far, which is saved
///   (job.save.best). A training that job.stop has ended does not continue when it is resumed,
///   unless job.stop has more patience now.
/// - A training that resumes from a save made before the evaluation of its step runs that
///   evaluation first.
/// - With job.save the last step is saved, before its evaluation. If saving the best fails at the
///   last evaluation, everything else is done first, and then WorldError is thrown.
/// - After RequestStop() the current step is the last. It is saved. An evaluation in progress is
///   abandoned; a training that resumes runs it again.
/// - A step that is not taken (job.nonfinite) throws TrainingError. The step before it is saved
///   first if its weights are finite: a save of other weights would push out a good one.
/// - `script` calls job.callbacks, each after the observer, with the records of records.h; on_epoch
///   gets {"epoch", "step"}, the passes and steps that were done. Null on ranks other than 0, where
///   no callbacks run. An error in a callback ends the training.
/// The engine stays open. Throws ConfigError as Texts() does if the model cannot write
/// eval.samples.
bool Train(const Job& job, const Plan& plan, TrainEngine& engine, TrainObserver& observer,
           Script* script = nullptr);

}  // namespace strata
