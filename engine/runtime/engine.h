// Engine: trains a planned job. This interface includes no torch, so that the launcher and Lua can
// hold an engine; the implementation is in the engine's shared library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/value.h"
#include "engine/comm/place.h"
#include "engine/forecast/step_window.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/training_error.h"
#include "engine/schedule/trace.h"

namespace strata {

/// The name of one tensor, "3.weight" (layer path and parameter), a digest of its bits, and its
/// norm.
struct TensorDigest {
  std::string path;
  std::string digest;
  double norm = 0;
};

/// What a training started from, if not from initial values.
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

/// The result of one optimizer step. Equal on all ranks, except for `seconds` and `measured`.
struct StepResult {
  int64_t step = 0;      ///< counted from 0
  double loss = 0;       ///< mean over the global batch
  double grad_norm = 0;  ///< of the whole model, before clipping
  double lr = 0;
  int64_t samples = 0;  ///< in the global batch
  double seconds = 0;
  /// The part of `seconds` spent waiting for data, on the rank that waited longest.
  double data_seconds = 0;
  /// For each rank, the seconds in which it computed, its last optimizer update included, without
  /// waiting for other ranks or for data. Empty if the ranks compute on accelerators.
  std::vector<double> busy_seconds;
  /// The mean share of the row's time in which ranks did not compute; -1 if unknown.
  double idle_share = -1;
  PartMeans parts;  ///< of the loss
  /// The largest memory of tensors of any rank since the last step, in bytes.
  int64_t peak_memory = 0;
  /// The mean loss of each micro-batch, if job.losses asks for it.
  std::vector<double> micro_batch_losses;
  /// Digests of all gradients of the model, if asked for (set_record_gradients, job.grad_norms).
  std::vector<TensorDigest> gradients;
  /// Histograms of every gradient by its path, after every job.histograms steps; null otherwise.
  Value histograms = {};
  std::optional<SaveReport> save;    ///< a save that has ended since the last step
  bool owes_save = false;            ///< true if FinishSave() must be called
  std::optional<RecutReport> recut;  ///< set if layers were moved after this step (job.rebalance)
  /// Set on rank 0, once in a training: the times of the first steps that no other program
  /// disturbed, for the plan that the training started with (engine/forecast/run_profile.h).
  std::optional<MeasuredStep> measured;
  /// True if somebody called RequestStop(): this step is the last.
  bool stop = false;
  /// Set if the loss or a gradient is not finite.
  std::optional<NonFinite> nonfinite;
  int64_t skipped = 0;    ///< steps of the training that were skipped so far
  double loss_scale = 1;  ///< for the next step; above 1 only in float16
  /// False if the step was not applied and the training must end (job.nonfinite). The step then
  /// changed nothing, and the next TrainStep() repeats it.
  bool is_taken = true;

  /// Throws TrainingError with the report if the step was not taken.
  void CheckTaken() const {
    if (!is_taken) throw TrainingError(nonfinite->report);
  }
};

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

/// Rows of one output of the last layer, as bytes in the order of memory.
struct OutputRows {
  TensorSpec spec;  ///< of all rows together; dim 0 counts them
  std::string bytes;
};
/// The outputs of the last layer in the order of the samples, in blocks: neighbouring samples whose
/// rows have equal shapes share a block. Each block holds all outputs.
using Predicted = std::vector<std::vector<OutputRows>>;

/// True if the last of these layers is a Softmax along the last of `dims` dims, so that it gives
/// probabilities.
inline bool GivesProbabilities(const std::vector<LayerSpec>& layers, int64_t dims) {
  if (layers.empty()) return false;
  const LayerSpec& last = layers.back();
  if (last.type == "Sequential") return GivesProbabilities(last.children, dims);
  if (last.type != "Softmax" || last.scripted) return false;
  const Value& dim = last.args["dim"];
  if (dim.is_null()) return dims == 2;  // without dim, PyTorch takes dim 1 of two
  return dim.as_int() == -1 || dim.as_int() == dims - 1;
}

/// A request to continue texts by a language model: a job whose input is tokens (L) and whose last
/// layer gives, for each position, scores (L, V) of the token that follows.
struct TextRequest {
  std::vector<std::vector<int32_t>> prompts;  ///< prompts of 1 to L - 1 tokens each
  int64_t tokens = 100;                       ///< the largest number of new tokens per text
  double temperature = 0.8;                   ///< divides the scores; 0 chooses the likeliest token
  int64_t top_k = 40;  ///< only the likeliest tokens are drawn from; 0 means all
  /// The likeliest tokens whose probabilities add up to this are drawn from.
  double top_p = 0.95;
  int64_t seed = 1;        ///< of the random draws
  int64_t end = -1;        ///< the token that ends a text; -1 if there is none
  int64_t vocabulary = 0;  ///< tokens from this number on are not chosen; 0 means all are
  /// If false, keys and values are not kept: the whole text is computed for every token.
  bool keeps_tokens = true;
};

/// How the texts of a request will be computed.
struct TextReport {
  /// The layer because of which the keys and values of earlier tokens are not kept, and the reason;
  /// "" if they are kept.
  std::string note;
  /// Bytes of keys and values on the rank that keeps most of them.
  int64_t kept_bytes = 0;
};

/// One token that the model chose.
struct NewToken {
  int64_t prompt = 0;  ///< the index of the text that it continues
  int32_t token = 0;
  bool is_last = false;  ///< true if the text ends with it
};

/// The part of an engine that generates texts.
class TextEngine {
 public:
  virtual ~TextEngine() = default;

  /// Begins to write texts; texts of an earlier call are dropped. Each prompt is a micro-batch;
  /// with job.eval.batch, so many prompts of equal length share one. The tokens depend only on the
  /// request and the parameters: the random draw of a token is a function of (seed, prompt,
  /// position). Attention keeps the keys and values of earlier tokens, unless a layer gives other
  /// values for single tokens than for the same tokens within a text; all layers are tried. Throws
  /// ConfigError if the job is no language model, a prompt does not fit, or job.memory does not
  /// suffice for the keys and values.
  virtual TextReport BeginTexts(const TextRequest& request) = 0;
  /// Computes the next token of every text that has not ended, ordered by prompt; empty once all
  /// have ended.
  virtual std::vector<NewToken> NextTokens() = 0;
};

/// Micro-batches that the caller brings (Lua iterators), of all replicas in order. Torch-free
/// handle, see engine_tensors.h.
class MicroBatches;
/// The last stage's outputs, one entry per micro-batch of all replicas. Entries whose last stage is
/// in another process stay empty. Torch-free handle, see engine_tensors.h.
class Outputs;

/// Trains one job. There are two implementations: this process is one rank of several, or all ranks
/// are threads of this process. Calls are collective: all ranks make the same calls in the same
/// order.
///
/// A training starts from job.resume or job.weights. With job.save it regularly copies its state
/// and writes the copy while training continues. A save that fails (a full disk) is reported and
/// ends nothing: the previous save stays, and the next one tries again. Only the last save of a
/// training must succeed: Save() throws.
///
/// Order of calls: TrainStep() and Evaluate...() in any order; then Close().
///
/// If the loss or the gradients are not finite on any rank, the step changes no parameter, moment
/// or statistic on any rank, unless job.nonfinite is "warn": all ranks sum their losses and squared
/// gradients before the first of them updates. The step is then run once more with the same numbers
/// to find the layer from which such values come first; only such a step costs this extra time.
/// State that functions of the script keep themselves is not restored.
///
/// Errors: WorldError (a peer died, the watchdog found a hang, memory ran out), ConfigError (the
/// data do not fit). After an error only Close() may be called. One exception: if all ranks are
/// threads, given micro-batches that do not fit the layers or the loss are refused before any rank
/// sees them, and the engine stays usable.
class Engine : public TextEngine {
 public:
  /// Trains on the next batch of job.train_data, or on the given micro-batches, and runs the
  /// optimizer.
  virtual StepResult TrainStep(MicroBatches* batch = nullptr) = 0;
  /// Computes the loss of the given micro-batches without gradients, with layers in evaluation
  /// mode. `outputs` (may be null) receives the last stage's outputs.
  virtual EvalResult EvalBatch(MicroBatches& batch, Outputs* outputs) = 0;
  /// Evaluates all of job.test_data, every sample once.
  virtual EvalResult EvaluateTestData() = 0;
  /// Computes the last stage's outputs for the given micro-batches. Their targets are not read.
  virtual void PredictBatch(MicroBatches& batch, Outputs& outputs) = 0;
  /// Computes the outputs for part `part` (from 0) of job.test_data, whose targets are not read.
  /// Returns nullopt after the last part. Only the process of rank 0 gets the rows; others get an
  /// empty list. Throws ConfigError if an output has no row for each sample, or if the data are
  /// shuffled.
  virtual std::optional<Predicted> PredictTestData(int64_t part) = 0;
  /// The number of steps of one pass over job.train_data; 0 if the data have no end.
  virtual int64_t steps_per_epoch() const = 0;
  /// What the training started from.
  virtual const StartReport& start() const = 0;
  /// Saves the current state unless it is saved already, and returns when the save is complete.
  /// REQUIRES: job.save. Throws WorldError if the save fails.
  virtual SaveReport Save() = 0;
  /// Makes a save that is due (StepResult::owes_save) while the training waits, because a rank has
  /// no memory for a copy of its state. This is a call of its own so that the step's result can be
  /// reported first. The next TrainStep() makes the save if nobody called this.
  virtual SaveReport FinishSave() = 0;
  /// Waits for the save that is being written in the background and returns its report. Returns
  /// nullopt if there is none, or if an error has ended the threads that it needs.
  virtual std::optional<SaveReport> WaitForSave() = 0;
  /// Like Save(), into the folder of the best save, which keeps one save. If the save fails it does
  /// not count as the best: the next evaluation is compared with the previous best. REQUIRES:
  /// job.save.best.
  virtual SaveReport SaveBest() = 0;
  /// Moves layers between two steps so that the stages are cut at `cuts`. Parameters, moments and
  /// statistics move to the ranks that hold the layers from now on. No bit of the training changes,
  /// except that what layers of strata.layer keep in `self` does not move. Stages stay on their
  /// ranks, and the schedule stays the same. Afterwards layers no longer move automatically, the
  /// gradients of the last step read as zeros, and texts that were being written end. Throws
  /// ConfigError on all ranks, before anything moves, if the cuts are impossible (RecutPlan()).
  virtual RecutReport Recut(const std::vector<int>& cuts) = 0;
  /// Asks for an end of the training; may be called from any thread of any rank. The result of the
  /// step that runs, or of the next one, has `stop` set on all ranks. An evaluation of
  /// job.test_data ends early and sets `stop`, too.
  virtual void RequestStop() = 0;
  /// May be called from any thread of any rank: saves the step that runs, or the next one, like the
  /// saves of job.save.every. REQUIRES: job.save.
  virtual void RequestSave() = 0;

  virtual void set_record_gradients(bool record) = 0;
  /// Returns digests of all parameters of the model, in the order of layers.
  virtual std::vector<TensorDigest> Parameters() = 0;
  enum class Kind { kParameter, kGradient };
  /// Copies the whole parameter with this path into `outputs` as its only entry. `outputs` stays
  /// empty if the parameter is in another process or does not exist. A gradient is that of the last
  /// step as the optimizer used it: the mean over the batch, clipped. Before the first step it is
  /// zeros.
  virtual void ReadTensor(const std::string& path, Kind kind, Outputs& outputs) = 0;
  /// Makes running calls throw WorldError(`why`). May be called from any thread, also from the
  /// helper thread of a signal handler.
  virtual void Abort(const std::string& why) = 0;
  /// Describes what this rank does now, for a watchdog's report: "rank 1 (stage 1): 1F3, waiting
  /// for rank 0".
  virtual std::string Position() const = 0;
  /// Writes the call stacks of the ranks of this process into their flight records. May be called
  /// from any thread.
  virtual void NoteStacks() {}
  /// Collective, with job.comm_log: returns a table of the time that messages and collectives of
  /// all ranks took so far. Returns "" without job.comm_log and on ranks other than 0.
  virtual std::string CommReport() { return ""; }
  /// With job.trace: returns the times of all ranks' actions in the last training steps. Empty on
  /// ranks other than 0.
  virtual schedule::Trace TakeTrace() { return {}; }
  virtual void Close() = 0;
};

}  // namespace strata
