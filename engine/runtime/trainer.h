// Train(): the loop of steps and evaluations that every rank runs, with any engine.
#pragma once

#include <cstdint>
#include <string>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/runtime/engine.h"

namespace strata {

/// Hears what the training does. Every rank makes the same calls. By default they do nothing.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  /// Before the first step. `steps` includes the steps that were done before.
  virtual void OnStart(int64_t /*steps*/, const StartReport& /*start*/) {}
  virtual void OnStep(const StepResult& /*result*/) {}
  /// Before OnStep() of a step whose numbers are not finite, if job.nonfinite takes it.
  virtual void OnNonFinite(const std::string& /*report*/) {}
  /// Layers have moved to other ranks (job.rebalance).
  virtual void OnRecut(const RecutReport& /*report*/) {}
  /// A save has ended, well or not.
  virtual void OnSave(const SaveReport& /*report*/) {}
  virtual void OnEvalStart() {}
  /// After an evaluation; `steps_done` steps have been done. `is_last`: the one at the end.
  virtual void OnEval(int64_t /*steps_done*/, const EvalResult& /*result*/, bool /*is_last*/) {}
  virtual void OnSamplesStart() {}
  /// The texts of job.eval.samples after so many steps. `note`: why their keys and values are not
  /// kept; "" = they are.
  virtual void OnSamples(int64_t /*steps_done*/, const std::vector<std::string>& /*texts*/,
                         const std::string& /*note*/) {}
};

/// The number of steps of the whole training: job.steps, or the steps of job.epochs passes over the
/// data, of `per_epoch` steps each, rounded up to at least one. 0 for epochs of data that has no
/// end (`per_epoch` is 0).
int64_t StepsOf(const Job& job, int64_t per_epoch);
/// The same. Throws ConfigError for epochs of data that has no end.
int64_t TotalSteps(const Job& job, const Engine& engine);

/// Trains the steps that are left. All ranks call it together, as they call the engine.
/// - data.test is evaluated after every job.eval.every steps, and at the end.
/// - The texts of job.eval.samples are written behind evaluations, or after every so many steps,
///   and at the end. A training that goes on after such a step writes them again.
/// - An evaluation may end the training (job.stop), or be the best, which is saved (job.save.best).
///   One that has ended so does not go on from its save, unless job.stop has more patience now.
/// - A training that goes on from a save makes up for an evaluation that the save did not see, as
///   the last one.
/// - With job.save the last step is saved, before the evaluation. Where the best save of the last
///   evaluation fails, all else is done, and then WorldError thrown.
/// - When the engine was asked to stop, the step that runs is the last. It is saved, and the result
///   is false. An evaluation is left; a training that goes on makes up for it.
/// - A step that is not taken (job.nonfinite) throws TrainingError. The step before it is saved
///   first if its weights are finite: a save of other weights would push out a good one.
/// - `script` calls job.callbacks, each after the observer, with the records of records.h; null on
///   ranks other than 0, where none are called. on_epoch gets {"epoch", "step"}: passes and steps
///   done. What a function throws ends the training.
/// The engine stays open. Throws as Texts() for eval.samples that the model cannot write.
bool Train(const Job& job, const Plan& plan, Engine& engine, TrainObserver& observer,
           Script* script = nullptr);

}  // namespace strata
