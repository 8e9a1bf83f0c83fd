// Stage: the layers of one stage on the rank that owns it, and the state of each micro-batch
// between its actions. A stage knows nothing of ranks, links or programs; the executor moves its
// inputs and outputs.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/stream_point.h"
#include "engine/job/job.h"
#include "engine/layers/layer.h"
#include "engine/layers/loss_scope.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine_script.h"
#include "engine/runtime/stage/chunked_head.h"
#include "engine/runtime/stage/copy_stream.h"
#include "engine/runtime/stage/document_probe.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/stage/kept.h"
#include "engine/runtime/stage/run_spec.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// Neighbouring layers of a stage, given by their indices in the stage's list.
struct Segment {
  size_t begin = 0;
  size_t end = 0;  ///< one past the last
  bool is_recomputed = true;
};

/// The parameters from which a stage is made.
struct StageParts {
  int stage = 0;
  bool is_first = true;  ///< its input is data, which needs no gradient
  /// True if any layer before this stage learns. If not, no gradient is computed for the stage's
  /// input.
  bool learns_before = true;
  int64_t seed = 0;  ///< the seed of the job
  /// Number of layers in the script's list. The loss is seeded as if it were the layer after them.
  int job_layers = 0;
  at::Device device = at::kCPU;
  ParameterTypes types = {};
  int64_t block_bytes = 0;  ///< of gradients that come late (FlatParameters); 0: they do not
  int begin = 0, end = 0;   ///< range of its layers in the job's list
  std::vector<StageLayer> layers;
  std::shared_ptr<void> reserved = nullptr;  ///< memory for initial values (ReserveMemory())
  std::vector<KeptValue> kept;               ///< connections that begin, end or pass through here
  DocumentLimits documents = {};             ///< of the job's packed data
  /// A division of all layers into segments. In a forward with Keep::kInput, a segment with
  /// `is_recomputed` keeps only its input; the others keep their activations. Empty: one segment of
  /// all layers with `is_recomputed`.
  std::vector<Segment> segments;
  std::unique_ptr<Loss> loss;  ///< set on the last stage, null on all others
  /// Set on the last stage if its last layer and the loss may run in chunks.
  std::unique_ptr<ChunkedHead> chunked_head;
  std::string loss_label = "the loss";       ///< the name of the loss in messages
  std::shared_ptr<AxisComm> axis = nullptr;  ///< the model axis; null if it has one rank
  /// Number of parts into which the last dim of the last layer's output is divided over the model
  /// axis, for a loss that computes on parts.
  int output_parts = 1;
  /// True if a later stage in another thread runs a function of the script, which might write to
  /// this stage's output.
  bool shares_output = false;
};

/// Builds the layers of stage `stage` only, with initial values that do not depend on the
/// partition: layer i is built after seeding with job.seed + i, or with the seed that job.seed_fn
/// returns for i; a tied layer gets the values of its first use. `axis`: the model axis over which
/// layers are divided; null if it has one rank. Throws ConfigError as the layers do.
StageParts BuildStage(const Job& job, const Plan& plan, int stage, at::Device device,
                      EngineScript& script, const std::shared_ptr<AxisComm>& axis = nullptr);

/// What a forward keeps for the backward: all activations, or only the inputs of the recomputed
/// segments, in which case Recompute() must be called before the backward.
enum class Keep { kActivations, kInput };

/// The calls for a micro-batch in training:
///   SetInput [SetTarget] Forward(kActivations) | (Forward(kInput) Recompute)
///   TakeOutput, SetOutputGradient (not on the last stage)
///   Backward | (BackwardInput BackwardWeights), TakeInputGradient (not on the first stage)
/// and in evaluation: SetInput [SetTarget] Forward TakeOutput. Begin() comes before the first call
/// of a run. The calls of different micro-batches may be interleaved in any way.
///
/// Transfers: SetInput() and SetTarget() start to copy data from the host to an accelerator, and
/// the forward waits for them. So the data of the next micro-batch may be set early.
///
/// Recomputation: Recompute() runs the last recomputed segment forward again; the backward runs
/// each earlier one when it comes to it. So the activations of at most one recomputed segment are
/// in memory at a time. Random layers draw the same numbers again, and statistics are not updated
/// twice.
///
/// Half precision: if layers compute in another type than float32, this type replaces float32 in
/// inputs and in the output of every layer, whatever the cuts. The loss gets float32. Layers inside
/// other layers convert their own tensors.
///
/// Chunks: where the last layer and the loss run in chunks (chunked_head.h), the forward that makes
/// the graph also adds that layer's weight gradients, and has the gradient of its input.
///
/// Tensors at a boundary: a graph begins at inputs (graph_input.h). Outputs are handed over without
/// their graph, of which only the roots are kept, so that an output that no backward reads is freed
/// once it is sent. Nothing writes to an input: its memory may belong to the sender. So the first
/// layer works out of place (libtorch notes, "In place as a stage's first layer"), and functions of
/// the script get a CopyOnWrite() of it.
///
/// Errors: ConfigError naming the layer if it cannot take a value or gives another shape than the
/// plan says; WorldError if memory runs out.
class Stage {
 public:
  Stage(StageParts parts, const GroupOf& group_of);
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  int number() const { return parts_.stage; }
  bool is_first() const { return parts_.is_first; }
  bool is_last() const { return parts_.loss != nullptr; }
  FlatParameters& parameters() { return parameters_; }
  const std::vector<StageLayer>& layers() const { return parts_.layers; }
  /// True if a forward may add to weight gradients, because the last layer runs in chunks.
  bool adds_in_forward() const { return parts_.chunked_head != nullptr; }

  /// Begins a run and drops the state of the last one. In training, the gradients become zero.
  /// `run` must outlive the run.
  void Begin(const RunSpec& run);

  /// The tensors may be on any device. They come from the data, or from the stage before.
  void SetInput(int m, Tensors input);
  bool has_input(int m) const { return !micro_batches_[m].input.empty(); }
  void SetTarget(int m, Tensors target);
  void SetOutputGradient(int m, Tensors gradient);
  bool has_output_gradient(int m) const { return micro_batches_[m].output_gradient.has_value(); }

  void Forward(int m, Keep keep);
  void Recompute(int m);
  /// Called during a backward with the index of the layer that it has reached: the gradients of the
  /// layers from there on are complete, except for later micro-batches. Used only in runs with
  /// `reports_passing`.
  using Passed = std::function<void(int layer)>;
  void Backward(int m, const Passed& passed = nullptr);
  void BackwardInput(int m);
  void BackwardWeights(int m);

  Tensors TakeOutput(int m);
  /// Returns one gradient for each floating-point input; an absent one (IsAbsent()) if the stage
  /// did not use the input.
  Tensors TakeInputGradient(int m);

  // What an action of micro-batch m has taken or given, as long as nobody has taken it over.
  const Tensors& input(int m) const { return micro_batches_[m].input; }
  const Tensors& target(int m) const { return micro_batches_[m].target; }
  const Tensors& output_gradient(int m) const { return *micro_batches_[m].output_gradient; }
  const Tensors& input_gradient(int m) const { return micro_batches_[m].input_gradient; }

  /// On the last stage: value and weight of the micro-batch's loss, without graph.
  const LossValue& loss(int m) const { return micro_batches_[m].loss; }
  /// The named parts of that loss; empty if the loss is a single number.
  const LossParts& loss_parts(int m) const { return micro_batches_[m].loss_parts; }
  const Hits& hits(int m) const { return micro_batches_[m].hits; }
  /// The output until it is taken; on the last stage only if the run keeps outputs.
  const Tensors& output(int m) const { return micro_batches_[m].output; }

 private:
  /// What a segment keeps of a micro-batch between forward and backward.
  struct SegmentState {
    Tensors input;
    bool has_graph = false;
    // One per floating-point output; invalid without gradient
    std::vector<torch::autograd::Edge> roots;
  };

  struct MicroBatch {
    Tensors input;  // until the forward
    Tensors target;
    StreamPoint input_arrived, target_arrived;
    Tensors output;
    // Set to an empty list if only integers cross the boundary.
    std::optional<Tensors> output_gradient;
    Tensors input_gradient;
    std::vector<SegmentState> segments;
    std::shared_ptr<WeightGradients> weight_gradients;
    LossValue loss;
    LossParts loss_parts;
    Hits hits;
  };

  enum class Run { kForward, kForwardWithGraph, kAgain };
  bool has_gradient(size_t segment) const { return !is_first() || segment > 0; }
  bool LearnsBefore(size_t segment) const;
  Tensors RunSegment(int m, size_t k, Run run);
  /// The output of a segment, or, if the last layer runs in chunks with the loss, its input.
  struct SegmentOutput {
    Tensors tensors;
    bool before_head = false;
  };
  bool IsProbed(const Pass& pass) const;
  SegmentOutput RunLayers(int m, const Segment& segment, Tensors x, const Pass& pass);
  bool RunsInChunks(int m, const Tensors& x) const;
  void ReportPassing(const Tensors& x, int layer);
  std::string LossOf(int m) const;
  void ComputeLoss(int m, const Tensors& output, const Pass* in_chunks);
  LossValue LossInChunks(int m, const at::Tensor& x, const Pass& pass);
  void WarnWithoutGradient(const Tensors& output, const at::Tensor& sum);
  void RunBackward(int m, bool defer_weights);
  Tensors RunBackward(int m, size_t k, const Tensors& gradients);
  Tensors ToDevice(Tensors tensors, StreamPoint& arrived);
  bool is_half() const { return parts_.types.compute != at::kFloat; }
  Tensors InComputeType(Tensors tensors) const;
  void CheckOutput(int m, const Tensors& output) const;
  template <class Where, class Check>
  void CheckOnHost(const Tensors& tensors, const Where& where, const Check& check) const;

  StageParts parts_;
  FlatParameters parameters_;
  std::optional<CopyStream> copies_;  // set if the stage copies data to an accelerator
  const RunSpec* run_ = nullptr;
  const Passed* passed_ = nullptr;  // of the backward in progress; null if not reported
  std::vector<MicroBatch> micro_batches_;
  DocumentProbe probe_;      // of packed data
  bool has_warned_ = false;  // that the loss has no gradient
};

}  // namespace strata
