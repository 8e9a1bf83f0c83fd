// Engine: trains a planned job. This facade includes no torch, so that the launcher and Lua can
// hold it; the implementation is in the engine's shared library.
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

/// A digest of one tensor's bits under its layer path: "3.weight".
struct TensorDigest {
  std::string path;
  std::string digest;
  double norm = 0;
};

/// What a training began with, if not with initial values.
struct StartReport {
  int64_t step = 0;                     ///< steps that were done before
  int64_t skipped = 0;                  ///< of these, left out
  Value loss_scale = {};                ///< LossScale::state() of the save; null = it had none
  Value monitors = {};                  ///< Monitors::state() of the save; null = it had none
  bool owes_evaluation = false;         ///< that of this step is still to come: Monitors::owes()
  bool owes_samples = false;            ///< so are the texts of job.eval.samples
  std::string why_over = {};            ///< why no step is left, "stopped after ..."; "" = some are
  std::string from = {};                ///< the save, or the file of weights; "" = nothing
  std::vector<std::string> notes = {};  ///< what the user should know of it, a line each
};

/// How a save ended.
struct SaveReport {
  int64_t step = 0;        ///< steps done
  std::string path = {};   ///< where it is
  std::string error = {};  ///< why it does not count; "" = it does
  int64_t bytes = 0;
  double seconds = 0;    ///< from the copy until it counted
  bool is_best = false;  ///< it is that of job.save.best
};

/// What became of a re-cut: layers of a training moved to other ranks.
struct RecutReport {
  int64_t step = 0;        ///< steps done
  std::vector<int> cuts;   ///< as they are now
  std::string moves = {};  ///< MovesText(); "" = nothing had to move
  std::string why = {};    ///< what was measured; "" = somebody asked for these cuts
  double saving = 0;       ///< of a step's time, as predicted; 0 = somebody asked
  int64_t bytes = 0;       ///< that went from rank to rank
  double seconds = 0;
};

/// The means of the parts that a loss function of the script gives beside the loss, by name.
using PartMeans = std::vector<std::pair<std::string, double>>;

/// Of a step whose loss or gradients are not finite.
struct NonFinite {
  /// The first layer that gave such values, with its stage, micro-batch and their statistics: "step
  /// 13: the loss is nan; net.lua:7: layer 3 Linear(64, 10) (stage 1, micro-batch 2) gives ...".
  /// "" where the steps before were not finite either, and counted (job.nonfinite = "warn").
  std::string report;
  /// Whether the parameters are finite: if not, no later step can be.
  bool has_finite_weights = true;
};

/// What one optimizer step did. Equal on every rank, but for seconds.
struct StepResult {
  int64_t step = 0;      ///< counted from 0
  double loss = 0;       ///< mean over the global batch
  double grad_norm = 0;  ///< of the whole model, before clipping
  double lr = 0;
  int64_t samples = 0;  ///< of the global batch
  double seconds = 0;
  double data_seconds = 0;  ///< of these, for data: the rank's that waited longest
  /// Of each rank: how long it computed, waiting for no other and for no data, last update
  /// included. Empty on a device that works beside the host.
  std::vector<double> busy_seconds;
  double idle_share = -1;   ///< the share of the row in which ranks did not; -1: unknown
  PartMeans parts;          ///< of the loss
  int64_t peak_memory = 0;  ///< bytes, the largest rank's, since the last step
  std::vector<double> micro_batch_losses;  ///< means, on request (job.losses)
  /// On request (set_record_gradients, job.grad_norms), whole model.
  std::vector<TensorDigest> gradients;
  /// After so many steps (job.histograms), of every gradient by its path; null = none.
  Value histograms = {};
  std::optional<SaveReport> save;    ///< one that has ended since the last step
  bool owes_save = false;            ///< FinishSave() is due
  std::optional<RecutReport> recut;  ///< behind this step layers moved: job.rebalance
  /// Of rank 0, once in a training: what its steps took, of the first ones that no other program
  /// disturbed, with the plan that it began with (engine/forecast/run_profile.h).
  std::optional<MeasuredStep> measured;
  bool stop = false;                   ///< somebody asked to end here: RequestStop()
  std::optional<NonFinite> nonfinite;  ///< unset: loss and gradients are finite
  int64_t skipped = 0;                 ///< steps of the training that were left out so far
  double loss_scale = 1;               ///< for the next step; above 1 in float16 alone
  /// False where the step was to end the training (job.nonfinite): nothing has changed by it, and
  /// the next TrainStep() is the same step.
  bool is_taken = true;

  /// Throws TrainingError with the report where the step was not taken.
  void CheckTaken() const {
    if (!is_taken) throw TrainingError(nonfinite->report);
  }
};

struct EvalResult {
  double loss = 0;  ///< mean over the samples
  int64_t samples = 0;
  double metric = 0;  ///< accuracy as a share of the samples
  bool has_metric = false;
  PartMeans parts = {};  ///< of the loss
  /// Of job.eval.metrics, by name: a number, or rows of numbers.
  Value metrics = Value::MakeMap();
  bool is_best = false;          ///< by job.save.best: SaveBest() is due
  std::string why_stopped = {};  ///< by job.stop the training ends here, as a sentence; "" = no
  /// Somebody asked to end here, RequestStop(), before all samples were seen: the rest says
  /// nothing.
  bool stop = false;

  bool ends_training() const { return !why_stopped.empty(); }
};

/// Rows of one output of the last layer, as they are in memory.
struct OutputRows {
  TensorSpec spec;  ///< of all rows; dim 0 counts them
  std::string bytes;
};
/// What the last layer gives, in the order of the samples: blocks of them whose rows have one
/// shape, each with all outputs.
using Predicted = std::vector<std::vector<OutputRows>>;

/// Whether the last of these layers gives probabilities along the last of `dims` dims: a Softmax.
inline bool GivesProbabilities(const std::vector<LayerSpec>& layers, int64_t dims) {
  if (layers.empty()) return false;
  const LayerSpec& last = layers.back();
  if (last.type == "Sequential") return GivesProbabilities(last.children, dims);
  if (last.type != "Softmax" || last.scripted) return false;
  const Value& dim = last.args["dim"];
  if (dim.is_null()) return dims == 2;  // of as many PyTorch takes dim 1
  return dim.as_int() == -1 || dim.as_int() == dims - 1;
}

/// Texts to be written by a language model: a job whose input is tokens (L) and whose last layer
/// gives scores (L, V) of the token that follows each of them.
struct TextRequest {
  std::vector<std::vector<int32_t>> prompts;  ///< each of 1 to L - 1 tokens
  int64_t tokens = 100;                       ///< new ones of each text at most
  double temperature = 0.8;                   ///< scores are divided by it; 0 = the likeliest token
  int64_t top_k = 40;                         ///< of so many likeliest tokens; 0 = of all
  double top_p = 0.95;       ///< of the likeliest ones whose probabilities add up to it
  int64_t seed = 1;          ///< of the draws
  int64_t end = -1;          ///< the token that ends a text; -1 = there is none
  int64_t vocabulary = 0;    ///< tokens from there on are not chosen; 0 = all are
  bool keeps_tokens = true;  ///< false: the whole text runs for every token
};

/// How texts are written.
struct TextReport {
  /// Which layer keeps earlier tokens from being kept, and why; "" = they are kept.
  std::string note;
  int64_t kept_bytes = 0;  ///< of the rank with the most keys and values
};

/// A token that was chosen.
struct NewToken {
  int64_t prompt = 0;  ///< which text it continues
  int32_t token = 0;
  bool is_last = false;  ///< the text ends with it
};

/// What of an engine writes texts.
class TextEngine {
 public:
  virtual ~TextEngine() = default;

  /// Begins to write texts, in the place of those before. Each is a micro-batch; with
  /// job.eval.batch so many prompts of equal length are one. The tokens depend on nothing but the
  /// request and the parameters: a draw is by (seed, prompt, place in the text). Attention keeps
  /// the keys and values of earlier tokens, unless a layer, which are all tried, gives other values
  /// for tokens alone than for the same ones within a text. Throws ConfigError for a job that is no
  /// language model, prompts that do not fit, and where job.memory does not suffice for the keys
  /// and values.
  virtual TextReport BeginTexts(const TextRequest& request) = 0;
  /// The next token of every text that has not ended, in the order of prompts; none when all have.
  virtual std::vector<NewToken> NextTokens() = 0;
};

/// Micro-batches that the caller brings (Lua iterators), of all replicas, which share them out in
/// order; torch-free handle, see engine_tensors.h.
class MicroBatches;
/// The last stage's outputs, one entry per micro-batch of all replicas; those whose last stage is
/// in another process stay empty. Torch-free handle, see engine_tensors.h.
class Outputs;

/// Trains one job. Two implementations: this process is one rank of several, or all ranks are
/// threads of this process. Calls are collective: every rank makes the same calls in the same
/// order.
///
/// It begins where job.resume or job.weights say. With job.save, every so many steps it copies its
/// state and saves the copy while the training goes on. A save that fails (a full disk) is reported
/// and ends nothing; the one before stays, and the next one tries again. Only the last save of a
/// training must not fail: Save() throws.
///
///   TrainStep*, Evaluate*, in any order and mixture; then Close().
/// A step whose loss or gradients are not finite on any rank changes no parameter, moment or
/// statistic of any layer on any rank, unless job.nonfinite is "warn": all ranks sum losses and
/// squares of gradients before the first of them updates. The step then runs once more, with the
/// same numbers, to see where such values come from first; only such a step pays for it. State that
/// functions of the script keep to themselves is the script's.
/// Errors: WorldError (a peer died, a watchdog spoke, out of memory), ConfigError (data that does
/// not fit). After an error only Close() is allowed; but where all ranks are threads, given
/// micro-batches that do not fit the layers or the loss are refused before any rank sees them.
class Engine : public TextEngine {
 public:
  /// The next batch of job.train_data, or the given micro-batches; then the optimizer's step.
  virtual StepResult TrainStep(MicroBatches* batch = nullptr) = 0;
  /// Loss of the given micro-batches, without gradients, layers in evaluation mode. `outputs`
  /// (optional) receives the last stage's outputs.
  virtual EvalResult EvalBatch(MicroBatches& batch, Outputs* outputs) = 0;
  /// All of job.test_data, every sample once.
  virtual EvalResult EvaluateTestData() = 0;
  /// The last stage's outputs for the given micro-batches, whose targets are not read.
  virtual void PredictBatch(MicroBatches& batch, Outputs& outputs) = 0;
  /// The outputs for part `part` (from 0) of job.test_data, whose targets are not read; none behind
  /// the last part. In the process of rank 0; elsewhere without rows. Throws ConfigError where an
  /// output has not a row for each sample, or the data is shuffled.
  virtual std::optional<Predicted> PredictTestData(int64_t part) = 0;
  /// Steps of one pass over job.train_data; 0 when the data has no end.
  virtual int64_t steps_per_epoch() const = 0;
  /// What it began with.
  virtual const StartReport& start() const = 0;
  /// Saves where the training stands now, unless that was saved already, and returns when the save
  /// counts. REQUIRES: job.save. Throws WorldError when it fails.
  virtual SaveReport Save() = 0;
  /// Makes the save of job.save.every that the last step owes (StepResult::owes_save): a rank has
  /// no room for a copy, so that the training waits. What is told of the step comes first then; the
  /// next TrainStep() makes the save where nobody did.
  virtual SaveReport FinishSave() = 0;
  /// Waits for the save that is being written beside the training, and gives its report; none where
  /// none is, or where an error has ended the threads that it needs.
  virtual std::optional<SaveReport> WaitForSave() = 0;
  /// As Save(), into the folder of the best save, which keeps one. One that fails is no best: the
  /// next evaluation is compared with the one before. REQUIRES: job.save.best.
  virtual SaveReport SaveBest() = 0;
  /// Cuts the layers so, between two steps: parameters, moments and statistics move to the ranks
  /// that have the layers from now on, and no bit of the training changes, except with
  /// what layers of strata.layer keep in `self`, which does not move. Stages stay on their ranks,
  /// and the schedule is the same. From now on no layers move by themselves. Gradients of the last
  /// step are zeros then. Texts that were being written end. Throws ConfigError, on all ranks and
  /// before anything moves, for cuts that cannot be (RecutPlan()).
  virtual RecutReport Recut(const std::vector<int>& cuts) = 0;
  /// From any thread of any rank: the result of the step that runs, or of the next one, says `stop`
  /// on all ranks. An evaluation of job.test_data is left before its end, and says it, too.
  virtual void RequestStop() = 0;
  /// From any thread of any rank: the step that runs, or the next one, is saved as those of
  /// job.save.every are. REQUIRES: job.save.
  virtual void RequestSave() = 0;

  virtual void set_record_gradients(bool record) = 0;
  /// Digests of all parameters of the model, in the order of layers.
  virtual std::vector<TensorDigest> Parameters() = 0;
  enum class Kind { kParameter, kGradient };
  /// A copy of the parameter of this path, whole, as the one entry of `outputs`; stays empty where
  /// it is in another process, or nowhere. A gradient is that of the last step as the optimizer
  /// used it: the mean over the batch, clipped; zeros before the first step.
  virtual void ReadTensor(const std::string& path, Kind kind, Outputs& outputs) = 0;
  /// From any thread or a signal's helper thread: makes running calls throw WorldError(`why`).
  virtual void Abort(const std::string& why) = 0;
  /// What this rank does right now, for a watchdog's report: "rank 1 (stage 1): 1F3, waiting for
  /// rank 0".
  virtual std::string Position() const = 0;
  /// From any thread: writes where the ranks of this process are, call by call, into their flight
  /// records.
  virtual void NoteStacks() {}
  /// With job.comm_log, collective: a table of what messages and collectives of all ranks took so
  /// far; else "". Empty where this process is not rank 0.
  virtual std::string CommReport() { return ""; }
  /// With job.trace: when the actions of the last training steps ran, of all ranks; in the process
  /// of rank 0, else empty.
  virtual schedule::Trace TakeTrace() { return {}; }
  virtual void Close() = 0;
};

}  // namespace strata
