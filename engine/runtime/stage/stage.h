// Stage: the layers of one stage on the rank that owns it, and what it keeps of each micro-batch
// between its actions. Knows nothing of ranks, links and programs; the executor moves what it
// takes and gives.
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
#include "engine/runtime/stage/copy_stream.h"
#include "engine/runtime/stage/flat_parameters.h"
#include "engine/runtime/stage/kept.h"
#include "engine/runtime/stage/run_spec.h"
#include "engine/runtime/stage/stage_layer.h"

namespace strata {

/// Neighbouring layers of a stage, by place in its list.
struct Segment {
  size_t begin = 0;
  size_t end = 0;  ///< one past the last
  bool is_recomputed = true;
};

/// What a stage is made of.
struct StageParts {
  int stage = 0;
  bool is_first = true;  ///< its input is data: no gradient is computed for it
  /// Something before it learns. Else no gradient is computed for its input, whatever the cut: what
  /// lies before may have none.
  bool learns_before = true;
  int64_t seed = 0;    ///< the job's
  int job_layers = 0;  ///< layers of the script's list: the loss draws as the layer after them
  at::Device device = at::kCPU;
  ParameterTypes types = {};
  int begin = 0, end = 0;  ///< its layers in the job's list
  std::vector<StageLayer> layers;
  std::vector<KeptValue> kept;  ///< connections that begin, end or pass here
  /// Cuts the whole list of layers into runs. In a forward with Keep::kInput a run with
  /// `is_recomputed` keeps its input only, and the others keep their activations. Empty: one run of
  /// all layers with `is_recomputed`.
  std::vector<Segment> segments;
  std::unique_ptr<Loss> loss;                ///< the last stage's; null on all others
  std::string loss_label = "the loss";       ///< for messages, as a layer's
  std::shared_ptr<AxisComm> axis = nullptr;  ///< the model axis; null where it has one rank
  /// The ranks of the model axis that have the last dim of the last layer's output in parts, for
  /// the loss.
  int output_parts = 1;
  /// A function of the script behind this stage, on another thread, may write to its output.
  bool shares_output = false;
};

/// Builds the layers of stage `stage`, and of no other, with the initial values that they have
/// under every partition: layer i after seeding with job.seed + i, or with what job.seed_fn gives
/// for i; a tied layer as its first use. `axis`: the model axis, which shares the layers; null
/// where it has one rank. Throws ConfigError as the layers do.
StageParts BuildStage(const Job& job, const Plan& plan, int stage, at::Device device,
                      EngineScript& script, const std::shared_ptr<AxisComm>& axis = nullptr);

/// Whether a forward keeps what the backward needs, or of the recomputed segments only their input
/// because a Recompute() comes in between.
enum class Keep { kActivations, kInput };

/// A life of a micro-batch, in training:
///   SetInput [SetTarget] Forward(kActivations) | (Forward(kInput) Recompute)
///   TakeOutput, SetOutputGradient (not on the last stage)
///   Backward | (BackwardInput BackwardWeights), TakeInputGradient (not on the first stage)
/// and in evaluation: SetInput [SetTarget] Forward TakeOutput. Begin() comes before the first of a
/// run. Micro-batches may overlap in any way.
///
/// Data of the host begin their way to an accelerator in SetInput() and SetTarget(); the forward
/// waits for them there. So the next micro-batch's may be set before.
///
/// Recomputation: Recompute() runs the last recomputed segment forward again, the backward each one
/// before it when it comes to it. So no more than one of them, and what was kept, is there at a
/// time. Random layers draw the same numbers again, and statistics are not counted twice.
///
/// Half precision: where the layers compute in another type than float32, that is the type of what
/// would be float32 else: data that come in, and the output of every layer, whatever the cuts. A
/// loss gets float32. Layers inside of layers see to it themselves.
///
/// Tensors at a boundary: at inputs a graph begins (graph_input.h); outputs are handed over without
/// their graph, of which only the roots are kept, so that an output which no backward reads is
/// freed once it is sent. Nothing writes to an input: the first layer works out of place, as the
/// memory may be the sender's (libtorch notes, "In place as a stage's first layer"), and functions
/// of the script are given a CopyOnWrite() of it.
///
/// Errors: ConfigError that names the layer, when it cannot take a value or gives another shape
/// than the plan says; WorldError when memory runs out.
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

  /// Forgets the last run. In training the gradients become zero. `run` must outlive the run.
  void Begin(const RunSpec& run);

  /// Tensors on any device; of data, or of the stage before.
  void SetInput(int m, Tensors input);
  bool has_input(int m) const { return !micro_batches_[m].input.empty(); }
  void SetTarget(int m, Tensors target);
  void SetOutputGradient(int m, Tensors gradient);
  bool has_output_gradient(int m) const { return micro_batches_[m].output_gradient.has_value(); }

  void Forward(int m, Keep keep);
  void Recompute(int m);
  /// `passed` is told where the backward has come to in the list of layers: the gradients of the
  /// layers from there on are complete but for later micro-batches. Only in runs with
  /// `reports_passing`.
  using Passed = std::function<void(int layer)>;
  void Backward(int m, const Passed& passed = nullptr);
  void BackwardInput(int m);
  void BackwardWeights(int m);

  Tensors TakeOutput(int m);
  /// One tensor for each floating-point input; an absent one where the stage did not use it.
  Tensors TakeInputGradient(int m);

  /// The last stage's: value and weight of the micro-batch's loss, without graph.
  const LossValue& loss(int m) const { return micro_batches_[m].loss; }
  /// The parts of that loss; none where it is one number.
  const LossParts& loss_parts(int m) const { return micro_batches_[m].loss_parts; }
  const Hits& hits(int m) const { return micro_batches_[m].hits; }
  /// On the last stage, if the run keeps them.
  const Tensors& output(int m) const { return micro_batches_[m].output; }

 private:
  /// What a segment keeps of a micro-batch.
  struct SegmentState {
    Tensors input;
    bool has_graph = false;
    std::vector<torch::autograd::Edge> roots;  // one per output; invalid where it has no gradient
  };

  struct MicroBatch {
    Tensors input;  // until the forward
    Tensors target;
    StreamPoint input_arrived, target_arrived;
    Tensors output;
    std::optional<Tensors> output_gradient;  // without tensors where only integers cross
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
  Tensors RunLayers(int m, const Segment& segment, Tensors x, const Pass& pass);
  void ReportPassing(const Tensors& x, int layer);
  std::string LossOf(int m) const;
  void ComputeLoss(int m, const Tensors& output);
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
  std::optional<CopyStream> copies_;  // to an accelerator
  const RunSpec* run_ = nullptr;
  const Passed* passed_ = nullptr;  // of the backward that runs
  std::vector<MicroBatch> micro_batches_;
  bool has_warned_ = false;  // of a loss without gradient
};

}  // namespace strata
