// Engine: trains a planned job. It has one interface for each kind of caller. None includes torch,
// so that the launcher and Lua can hold an engine; the implementation is in the engine's shared
// library.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/runtime/results.h"
#include "engine/schedule/trace.h"

namespace strata {

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

/// The interface for the loop of a training, Train(), and for callers that run single steps.
class TrainEngine : public TextEngine {
 public:
  /// What the training started from.
  virtual const StartReport& start() const = 0;
  /// The number of steps of one pass over job.train_data; 0 if the data have no end.
  virtual int64_t steps_per_epoch() const = 0;
  /// Trains on the next batch of job.train_data, or on the given micro-batches, and runs the
  /// optimizer.
  virtual StepResult TrainStep(MicroBatches* batch = nullptr) = 0;
  /// Evaluates all of job.test_data, every sample once.
  virtual EvalResult EvaluateTestData() = 0;
  /// Saves the current state unless it is saved already, and returns when the save is complete.
  /// REQUIRES: job.save. Throws WorldError if the save fails.
  virtual SaveReport Save() = 0;
  /// Makes a save that is due (StepEvents::owes_save) while the training waits, because a rank has
  /// no memory for a copy of its state. This is a call of its own so that the step's result can be
  /// reported first. The next TrainStep() makes the save if nobody called this.
  virtual SaveReport FinishSave() = 0;
  /// Like Save(), into the folder of the best save, which keeps one save. If the save fails it does
  /// not count as the best: the next evaluation is compared with the previous best. REQUIRES:
  /// job.save.best.
  virtual SaveReport SaveBest() = 0;
};

/// The interface for callers that run the layers forward only: for predictions, and on batches that
/// the script brings.
class ForwardEngine {
 public:
  virtual ~ForwardEngine() = default;

  /// Computes the loss of the given micro-batches without gradients, with layers in evaluation
  /// mode. `outputs` (may be null) receives the last stage's outputs.
  virtual EvalResult EvalBatch(MicroBatches& batch, Outputs* outputs) = 0;
  /// Computes the last stage's outputs for the given micro-batches. Their targets are not read.
  virtual void PredictBatch(MicroBatches& batch, Outputs& outputs) = 0;
  /// Computes the outputs for part `part` (from 0) of job.test_data, whose targets are not read.
  /// Returns nullopt after the last part. Only the process of rank 0 gets the rows; others get an
  /// empty list. Throws ConfigError if an output has no row for each sample, or if the data are
  /// shuffled.
  virtual std::optional<Predicted> PredictTestData(int64_t part) = 0;
};

/// The interface for callers that look into a training between two steps: `strata verify`, scripts
/// and reports.
class InspectEngine {
 public:
  virtual ~InspectEngine() = default;

  virtual void set_record_gradients(bool record) = 0;
  /// Returns digests of all parameters of the model, in the order of layers.
  virtual std::vector<TensorDigest> Parameters() = 0;
  enum class Kind { kParameter, kGradient };
  /// Copies the whole parameter with this path into `outputs` as its only entry. `outputs` stays
  /// empty if the parameter is in another process or does not exist. A gradient is that of the last
  /// step as the optimizer used it: the mean over the batch, clipped. Before the first step it is
  /// zeros.
  virtual void ReadTensor(const std::string& path, Kind kind, Outputs& outputs) = 0;
  /// Collective, with job.comm_log: returns a table of the time that messages and collectives of
  /// all ranks took so far. Returns "" without job.comm_log and on ranks other than 0.
  virtual std::string CommReport() = 0;
  /// With job.trace: returns the times of all ranks' actions in the last training steps. Empty on
  /// ranks other than 0.
  virtual schedule::Trace TakeTrace() = 0;
};

/// The interface for threads other than the one that trains: those of signals, of the launcher, of
/// an interrupt. Any thread may call it at any time.
class ControlEngine {
 public:
  virtual ~ControlEngine() = default;

  /// Asks for an end of the training, on any rank. The result of the step that runs, or of the next
  /// one, has `stop` set on all ranks. An evaluation of job.test_data ends early and sets `stop`,
  /// too.
  virtual void RequestStop() = 0;
  /// Saves the step that runs, or the next one, like the saves of job.save.every; may be called on
  /// any rank. REQUIRES: job.save.
  virtual void RequestSave() = 0;
  /// Makes running calls throw WorldError(`why`).
  virtual void Abort(const std::string& why) = 0;
  /// Describes what this rank does now, for a watchdog's report: "rank 1 (stage 1): 1F3, waiting
  /// for rank 0".
  virtual std::string Position() const = 0;
  /// Writes the call stacks of the ranks of this process into their flight records.
  virtual void NoteStacks() = 0;
};

/// Trains one job. There are two implementations: this process is one rank of several, or all ranks
/// are threads of this process. All calls but those of ControlEngine are collective: all ranks make
/// the same calls in the same order.
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
class Engine : public TrainEngine,
               public ForwardEngine,
               public InspectEngine,
               public ControlEngine {
 public:
  /// Moves layers between two steps so that the stages are cut at `cuts`. Parameters, moments and
  /// statistics move to the ranks that hold the layers from now on. No bit of the training changes,
  /// except that what layers of strata.layer keep in `self` does not move. Stages stay on their
  /// ranks, and the schedule stays the same. Afterwards layers no longer move automatically, the
  /// gradients of the last step read as zeros, and texts that were being written end. Throws
  /// ConfigError on all ranks, before anything moves, if the cuts are impossible (RecutPlan()).
  virtual RecutReport Recut(const std::vector<int>& cuts) = 0;
  /// Waits for the save that is being written in the background and returns its report. Returns
  /// nullopt if there is none, or if an error has ended the threads that it needs.
  virtual std::optional<SaveReport> WaitForSave() = 0;
  virtual void Close() = 0;
};

}  // namespace strata
