// Results of an engine's calls: steps, evaluations, saves, and what a training started from.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/value.h"
#include "engine/forecast/step_window.h"
#include "engine/runtime/training_error.h"

namespace strata {

/// The name of one tensor, "3.weight" (layer path and parameter), a digest of its bits, and its
/// norm.
struct TensorDigest {
  std::string path;
  std::string digest;
  double norm = 0;
};

/// Tells from which save or weights a training started.
struct StartReport {
  int64_t step = 0;       ///< steps that were done before
  int64_t skipped = 0;    ///< those of them that were skipped (job.nonfinite)
  Value loss_scale = {};  ///< LossScale::state() of the save; null if it had none
  Value monitors = {};    ///< Monitors::state() of the save; null if it had none
  /// True if the evaluation of this step is still to come: Monitors::owes().
  bool owes_evaluation = false;
  /// True if the texts of job.eval.samples after this step are still to come.
  bool owes_samples = false;
  /// Why no step is left, as "stopped after ..."; "" if there are steps left.
  std::string why_over = {};
  /// Path of the save or of the file of weights; "" if the training starts from initial values.
  std::string from = {};
  /// Further messages for the user, one line each.
  std::vector<std::string> notes = {};
};

/// The outcome of one save.
struct SaveReport {
  int64_t step = 0;        ///< steps that were done
  std::string path = {};   ///< path of the save
  std::string error = {};  ///< why the save failed; "" if it is complete
  int64_t bytes = 0;
  double seconds = 0;    ///< from the copy of the state until the save was complete
  bool is_best = false;  ///< true for a save of job.save.best
};

/// The outcome of a re-cut: layers of a running training were moved to other ranks.
struct RecutReport {
  int64_t step = 0;        ///< steps that were done
  std::vector<int> cuts;   ///< the new cuts
  std::string moves = {};  ///< description by MovesText(); "" if no layer had to move
  std::string why = {};    ///< the reason, from measurements; "" if the cuts were asked for
  /// Predicted share of a step's time that the new cuts save; 0 if the cuts were asked for.
  double saving = 0;
  int64_t bytes = 0;  ///< sent between ranks
  double seconds = 0;
};

/// The means of the named parts that a scripted loss function returns beside the loss.
using PartMeans = std::vector<std::pair<std::string, double>>;

/// Describes a step whose loss or gradients are not finite.
struct NonFinite {
  /// Names the first layer that gave such values, with its stage, its micro-batch and statistics:
  /// "step 13: the loss is nan; net.lua:7: layer 3 Linear(64, 10) (stage 1, micro-batch 2) gives
  /// ...". "" if the step before was not finite either and both were applied (job.nonfinite =
  /// "warn").
  std::string report;
  /// True if the parameters are finite. If they are not, no later step can be finite.
  bool has_finite_weights = true;
};

/// The numbers that a step computed. They are equal on all ranks.
struct StepNumbers {
  int64_t step = 0;      ///< counted from 0
  int64_t samples = 0;   ///< in the global batch
  double loss = 0;       ///< mean over the global batch
  double grad_norm = 0;  ///< of the whole model, before clipping
  double lr = 0;
  PartMeans parts;  ///< of the loss
  /// The mean loss of each micro-batch, if job.losses asks for it.
  std::vector<double> micro_batch_losses;
  /// Digests of all gradients of the model, if asked for (set_record_gradients, job.grad_norms).
  std::vector<TensorDigest> gradients;
  /// Histograms of every gradient by its path, after every job.histograms steps; null otherwise.
  Value histograms = {};
};

/// The time and the memory that a step took.
struct StepUse {
  double seconds = 0;  ///< of this rank
  /// The part of `seconds` spent waiting for data, on the rank that waited longest.
  double data_seconds = 0;
  /// For each rank, the seconds in which it computed, its last optimizer update included, without
  /// waiting for other ranks or for data. Empty if the ranks compute on accelerators.
  std::vector<double> busy_seconds;
  /// The mean share of the row's time in which ranks did not compute; -1 if unknown.
  double idle_share = -1;
  /// The largest memory of tensors of any rank since the last step, in bytes.
  int64_t peak_memory = 0;
  /// Set on rank 0, once in a training: the times of the first steps that no other program
  /// disturbed, for the plan that the training started with (engine/forecast/run_profile.h).
  std::optional<MeasuredStep> measured;
};

/// Tells whether a step was applied. It is equal on all ranks.
struct StepVerdict {
  /// False if the step was not applied and the training must end (job.nonfinite). The step then
  /// changed nothing, and the next TrainStep() repeats it.
  bool is_taken = true;
  /// Set if the loss or a gradient is not finite.
  std::optional<NonFinite> nonfinite;
  int64_t skipped = 0;    ///< steps of the training that were skipped so far
  double loss_scale = 1;  ///< for the next step; above 1 only in float16

  /// Throws TrainingError with the report if the step was not taken.
  void CheckTaken() const {
    if (!is_taken) throw TrainingError(nonfinite->report);
  }
};

/// Tells what happened to the training around a step. It is equal on all ranks.
struct StepEvents {
  std::optional<SaveReport> save;    ///< a save that has ended since the last step
  bool owes_save = false;            ///< true if FinishSave() must be called
  std::optional<RecutReport> recut;  ///< set if layers were moved after this step (job.rebalance)
  /// True if somebody called RequestStop(): this step is the last.
  bool stop = false;
};

/// The result of one optimizer step. Readers take the part that they need.
struct StepResult : StepNumbers, StepUse, StepVerdict, StepEvents {};

struct EvalResult {
  double loss = 0;  ///< mean over the samples
  int64_t samples = 0;
  double metric = 0;  ///< the accuracy, as a share of the samples
  bool has_metric = false;
  PartMeans parts = {};  ///< of the loss
  /// The metrics of job.eval.metrics by name: a number, or rows of numbers.
  Value metrics = Value::MakeMap();
  /// True if job.save.best calls this the best evaluation so far: SaveBest() must be called.
  bool is_best = false;
  /// Why job.stop ends the training here, as a sentence; "" if it goes on.
  std::string why_stopped = {};
  /// True if RequestStop() ended the evaluation before all samples were seen. All other fields are
  /// then meaningless.
  bool stop = false;

  bool ends_training() const { return !why_stopped.empty(); }
};

}  // namespace strata
