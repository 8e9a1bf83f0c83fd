// A forward runs the segments of the stage in order; a backward runs them in reverse. Each segment
// keeps its input and, if it has a graph, the roots of the graph. A segment without a graph is run
// again before its backward. Only the segments' inputs and the roots are held by the stage;
// activations belong to the graph and are freed as the backward consumes them.
#include "engine/runtime/stage/stage.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/alias.h>
#include <ATen/ops/full_like.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/tensors/copy_on_write.h"
#include "engine/base/text.h"
#include "engine/comm/specs.h"
#include "engine/layers/axis/axis_scope.h"
#include "engine/layers/connections.h"
#include "engine/layers/documents.h"
#include "engine/layers/kept_tokens.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/random/random.h"
#include "engine/layers/residual.h"
#include "engine/layers/training_scope.h"
#include "engine/runtime/stage/examiner.h"
#include "engine/runtime/stage/feed.h"
#include "engine/runtime/stage/graph_input.h"
#include "engine/runtime/stage/straight_backward.h"
#include "engine/runtime/stage/torch_errors.h"
#include "engine/runtime/watch/named_range.h"

namespace strata {
namespace {

bool AreOnHost(const Tensors& tensors) {
  return std::ranges::all_of(tensors, [](const at::Tensor& tensor) { return tensor.is_cpu(); });
}

/// Runs `check`. Adds the place, which `where` returns, to a ConfigError.
template <class Where, class Check>
void CheckAt(const Where& where, const Check& check) {
  try {
    check();
  } catch (const ConfigError& error) {
    throw ConfigError(Str(where(), ": ", error.what()));
  }
}

/// Runs the layer. If ATen refuses the input, the layer's own check may explain it better.
Tensors ForwardOf(const StageLayer& layer, const Tensors& x, const Pass& pass) {
  try {
    return layer.layer->Forward(x, pass);
  } catch (const c10::Error&) {
    if (AreOnHost(x)) CheckAt([&] { return layer.label; }, [&] { layer.layer->CheckInput(x); });
    throw;
  }
}

Tensors WithoutGraph(const Tensors& tensors) {
  Tensors bare;
  bare.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) bare.push_back(tensor.detach());
  return bare;
}

Tensors Copies(const Tensors& tensors) {
  Tensors copies;
  for (const at::Tensor& tensor : tensors) copies.push_back(tensor.clone());
  return copies;
}

std::vector<Layer*> Chain(const std::vector<StageLayer>& layers, const Segment& segment) {
  std::vector<Layer*> chain;
  for (size_t i = segment.begin; i < segment.end; ++i) chain.push_back(layers[i].layer.get());
  return chain;
}

/// True if both tensors get their gradient from the same output of the same node, as when a
/// function of the script returns a tensor twice.
bool HaveOneGradient(const at::Tensor& one, const at::Tensor& other) {
  using torch::autograd::impl::gradient_edge;
  return one.requires_grad() && other.requires_grad() && gradient_edge(one) == gradient_edge(other);
}

/// Gives each repetition of a tensor in a layer's output an identity of its own, as a cut after the
/// layer would. Then a backward sums the gradients of each repetition first, and these sums
/// afterwards, in the same order for all plans.
Tensors Apart(Tensors tensors) {
  for (size_t i = 1; i < tensors.size(); ++i) {
    const auto before = std::span(tensors).first(i);
    const auto is_this = [&](const auto& other) { return HaveOneGradient(other, tensors[i]); };
    if (std::ranges::any_of(before, is_this)) tensors[i] = at::alias(tensors[i]);
  }
  return tensors;
}

/// The edges at which a backward begins, one for each floating-point output.
std::vector<torch::autograd::Edge> RootsOf(const Tensors& outputs) {
  std::vector<torch::autograd::Edge> roots;
  for (const at::Tensor& output : outputs) {
    if (!output.is_floating_point()) continue;
    roots.push_back(output.requires_grad() ? torch::autograd::impl::gradient_edge(output)
                                           : torch::autograd::Edge());
  }
  return roots;
}

/// Converts the tensors of type `from` to type `to`.
Tensors WithType(Tensors tensors, at::ScalarType from, at::ScalarType to) {
  for (at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() == from) tensor = tensor.to(to);
  }
  return tensors;
}

/// Takes one gradient for each floating-point tensor.
Tensors TakeGradients(const Tensors& inputs) {
  Tensors gradients;
  for (const at::Tensor& input : inputs) {
    if (input.is_floating_point()) gradients.push_back(TakeGradient(input));
  }
  return gradients;
}

}  // namespace

Stage::Stage(StageParts parts, const GroupOf& group_of)
    : parts_(std::move(parts)),
      parameters_(parts_.layers, group_of, parts_.device, parts_.types, parts_.block_bytes),
      probe_(is_half() ? 0.03 : 1e-4) {
  parts_.reserved = nullptr;
  if (parts_.segments.empty()) parts_.segments = {{0, parts_.layers.size(), true}};
  if (!parts_.device.is_cpu() && (is_first() || is_last())) copies_.emplace(parts_.device);
  // A segment's first layer must not overwrite its input, which is kept or was received.
  for (const Segment& segment : parts_.segments) {
    const std::vector<Layer*> chain = Chain(parts_.layers, segment);
    AllowOverwriting(chain);
    LinkNorms(chain);
  }
}

void Stage::Begin(const RunSpec& run) {
  run_ = &run;
  micro_batches_.clear();
  micro_batches_.resize(run.micro_batches());
  parameters_.RefreshCopies();
  if (run.training) parameters_.ClearGradients();
}

/// Runs `check` on host tensors before they are copied to an accelerator.
template <class Where, class Check>
void Stage::CheckOnHost(const Tensors& tensors, const Where& where, const Check& check) const {
  if (!parts_.device.is_cpu() && AreOnHost(tensors)) CheckAt(where, check);
}

void Stage::SetInput(int m, Tensors input) {
  MicroBatch& micro_batch = micro_batches_[m];
  STRATA_CHECK(micro_batch.input.empty()) << "stage " << number() << ", micro-batch " << m;
  if (is_first() && !parts_.layers.empty()) {
    // A strata.documents takes any tokens; the layer behind it looks them up.
    const bool is_packed = !parts_.kept.empty() && parts_.kept[0].connection.of_documents;
    const StageLayer& first = parts_.layers[is_packed && parts_.layers.size() > 1 ? 1 : 0];
    CheckOnHost(
        input, [&] { return first.label; }, [&] { first.layer->CheckInput(input); });
    if (is_packed && AreOnHost(input)) {
      const StageLayer& documents = parts_.layers.front();
      CheckAt([&] { return documents.label; },
              [&] {
                documents.layer->CheckInput(input);
                if (input.size() > 1) Documents(input[1], parts_.documents).CheckLimits();
              });
    }
  }
  micro_batch.input = ToDevice(std::move(input), micro_batch.input_arrived);
}

void Stage::SetTarget(int m, Tensors target) {
  CheckOnHost(
      target, [&] { return LossOf(m); },
      [&] { parts_.loss->CheckTarget(target, run_->boundaries[m]->back()[0].shape); });
  MicroBatch& micro_batch = micro_batches_[m];
  micro_batch.target = ToDevice(std::move(target), micro_batch.target_arrived);
}

Tensors Stage::ToDevice(Tensors tensors, StreamPoint& arrived) {
  if (copies_ && AreOnHost(tensors)) return copies_->Start(tensors, arrived);
  for (at::Tensor& tensor : tensors) {
    tensor = tensor.detach().to(parts_.device, tensor.scalar_type());
  }
  return tensors;
}

void Stage::SetOutputGradient(int m, Tensors gradient) {
  micro_batches_[m].output_gradient = std::move(gradient);
}

void Stage::Forward(int m, Keep keep) {
  MicroBatch& micro_batch = micro_batches_[m];
  STRATA_CHECK(!micro_batch.input.empty()) << "stage " << number() << " has no input of " << m;
  if (run_->training) micro_batch.weight_gradients = std::make_shared<WeightGradients>();
  micro_batch.segments.resize(parts_.segments.size());
  micro_batch.input_arrived.Block();
  micro_batch.target_arrived.Block();
  Tensors x = InComputeType(std::exchange(micro_batch.input, {}));
  if (run_->examiner && is_first()) run_->examiner->ComesIn(m, x);
  for (size_t k = 0; k < parts_.segments.size(); ++k) {
    micro_batch.segments[k].input = WithoutGraph(x);
    const bool is_dropped = keep == Keep::kInput && parts_.segments[k].is_recomputed;
    const bool with_graph = run_->training && !is_dropped;
    x = RunSegment(m, k, with_graph ? Run::kForwardWithGraph : Run::kForward);
  }
  if (!is_last()) micro_batch.output = WithoutGraph(x);
  // This is done here because the first clone changes the storage of the original, which this
  // thread still reads.
  if (parts_.shares_output) micro_batch.output = CopyOnWrite(std::move(micro_batch.output));
  if (is_last() && run_->keep_outputs) {
    micro_batch.output = parts_.loss->WholeOutput(WithoutGraph(x));
  }
  if (!run_->training) micro_batch.segments.clear();
}

void Stage::Recompute(int m) {
  std::vector<SegmentState>& segments = micro_batches_[m].segments;
  for (size_t k = segments.size(); k-- > 0;) {
    if (segments[k].has_graph) continue;
    RunSegment(m, k, Run::kAgain);
    return;
  }
}

void Stage::Backward(int m, const Passed& passed) {
  passed_ = passed ? &passed : nullptr;
  RunBackward(m, /*defer_weights=*/false);
  passed_ = nullptr;
  micro_batches_[m].weight_gradients = nullptr;
}

void Stage::BackwardInput(int m) { RunBackward(m, /*defer_weights=*/true); }

void Stage::BackwardWeights(int m) {
  TranslateErrors([&] { return Str("stage ", number(), ", weight gradients of micro-batch ", m); },
                  [&] { micro_batches_[m].weight_gradients->Run(); });
  micro_batches_[m].weight_gradients = nullptr;
}

Tensors Stage::TakeOutput(int m) { return std::exchange(micro_batches_[m].output, {}); }

Tensors Stage::TakeInputGradient(int m) {
  return std::exchange(micro_batches_[m].input_gradient, {});
}

bool Stage::LearnsBefore(size_t segment) const {
  const auto learns = [](const StageLayer& layer) {
    return std::ranges::any_of(layer.layer->parameters(),
                               [](const Parameter& parameter) { return !parameter.frozen; });
  };
  const auto begin = parts_.layers.begin();
  return (parts_.learns_before && !is_first()) ||
         std::any_of(begin, begin + static_cast<int64_t>(parts_.segments[segment].begin), learns);
}

Tensors Stage::RunSegment(int m, size_t k, Run run) {
  MicroBatch& micro_batch = micro_batches_[m];
  SegmentState& kept = micro_batch.segments[k];
  kept.has_graph = run != Run::kForward;
  const at::AutoGradMode grad_mode(kept.has_graph);
  if (kept.has_graph && LearnsBefore(k)) {
    for (const at::Tensor& input : kept.input) {
      if (input.is_floating_point()) BeginGraph(input);
    }
  }
  Pass pass;
  pass.training = run_->training;
  pass.recomputing = run == Run::kAgain;
  if (kept.has_graph) {
    pass.weight_gradients = micro_batch.weight_gradients;
    pass.stale = parameters_.stale();
  }
  auto [output, before_head] = RunLayers(m, parts_.segments[k], kept.input, pass);
  const bool is_end = k + 1 == parts_.segments.size();
  if (is_end && run != Run::kAgain && !before_head) CheckOutput(m, output);
  if (is_end && is_last()) {
    if (run_->has_targets) ComputeLoss(m, output, before_head ? &pass : nullptr);
  } else if (kept.has_graph) {
    kept.roots = RootsOf(output);
  }
  return output;
}

/// True if layers are probed in this pass (DocumentProbe), as in the first one of a training.
bool Stage::IsProbed(const Pass& pass) const {
  return pass.training && !pass.recomputing && !run_->examiner;
}

Stage::SegmentOutput Stage::RunLayers(int m, const Segment& segment, Tensors x, const Pass& pass) {
  const AxisScope axis(parts_.axis);
  const TrainingScope training(pass.training);
  const NormsApart apart(run_->examiner || run_->watch);
  const TokenScope tokens(run_->kept_tokens.empty() ? nullptr : run_->kept_tokens[m]);
  const int64_t global_micro_batch = run_->first_micro_batch + m;
  Kept kept(parts_.kept, parts_.begin + static_cast<int>(segment.begin),
            parts_.begin + static_cast<int>(segment.end), IsPacked(run_->boundaries[m]->front()));
  kept.TakeFromInput(x);
  std::optional<Documents> documents;
  std::optional<DocumentScope> packed;
  const auto see_documents = [&] {
    if (packed || !kept.documents()) return;
    documents.emplace(*kept.documents(), parts_.documents);
    packed.emplace(&*documents);
  };
  see_documents();
  std::optional<RandomScope> scope;
  for (size_t i = segment.begin; i < segment.end; ++i) {
    StageLayer& layer = parts_.layers[i];
    const NamedRange range(layer.label.c_str());
    // Neighbouring parts of one layer (parts.h) continue the same sequence of random numbers.
    const bool draws_on =
        i > segment.begin && layer.number >= 0 && layer.number == parts_.layers[i - 1].number;
    if (!draws_on) {
      scope.reset();
      scope.emplace(ForwardSeed(parts_.seed, global_micro_batch, layer.seeded_as()));
    }
    kept.GiveTo(layer.index, x);
    if (run_->reports_passing && pass.weight_gradients && i > segment.begin) {
      // The backward of a norm may run with that of the sum before it.
      const bool together = MayRunTogether(*parts_.layers[i - 1].layer, *layer.layer);
      ReportPassing(x, together ? layer.index + 1 : layer.index);
    }
    if (i + 1 == parts_.layers.size() && RunsInChunks(m, x)) return {std::move(x), true};
    if (run_->examiner) run_->examiner->Enters(layer.label, layer.index, number(), m, x);
    const Tensors seen = run_->watch ? Copies(x) : Tensors();
    if (packed && IsProbed(pass)) {
      TranslateErrors([&] { return layer.label; },
                      [&] { probe_.See(layer, x, *documents, layer.seeded_as()); });
    }
    x = TranslateErrors([&] { return layer.label; }, [&] { return ForwardOf(layer, x, pass); });
    if (run_->watch) run_->watch->See(layer, seen, x, pass);
    x = Apart(InComputeType(std::move(x)));
    if (run_->examiner) run_->examiner->Leaves(layer, number(), m, x);
    kept.TakeFrom(layer.index, x);
    see_documents();
  }
  kept.GiveToOutput(x);
  return {std::move(x)};
}

/// True if the last layer, whose input is x, and the loss run in chunks. They do not where
/// something reads the logits.
bool Stage::RunsInChunks(int m, const Tensors& x) const {
  return parts_.chunked_head && !run_->keep_outputs && !run_->reader && !run_->examiner &&
         parts_.chunked_head->Takes(x, micro_batches_[m].target);
}

/// Registers a hook that reports when the backward reaches the input of `layer`. Autograd runs the
/// newest node that is ready; so when the gradient of the layer's input is there, all nodes of this
/// layer and of later ones have run. That does not hold for an input of the stage that passes
/// several layers: its node runs as soon as its gradient is there.
void Stage::ReportPassing(const Tensors& x, int layer) {
  for (const at::Tensor& tensor : x) {
    if (!tensor.requires_grad() || tensor.is_leaf() || BeginsGraph(tensor)) continue;
    tensor.register_hook([this, layer](const at::Tensor&) {
      if (passed_) (*passed_)(layer);
    });
    return;
  }
}

/// The name of the micro-batch's loss in messages.
std::string Stage::LossOf(int m) const {
  return Str(parts_.loss_label, " (stage ", number(), ", micro-batch ", m, ")");
}

/// `output`: of the last layer; if that runs in chunks, its input, and its pass is `in_chunks`.
void Stage::ComputeLoss(int m, const Tensors& output, const Pass* in_chunks) {
  MicroBatch& micro_batch = micro_batches_[m];
  const AxisScope axis(parts_.axis);
  const TrainingScope training(run_->training);
  const RandomScope scope(ForwardSeed(parts_.seed, run_->first_micro_batch + m, parts_.job_layers));
  const bool are_known = run_->feed && !run_->feed->inputs().empty();
  LossPartsScope loss_parts(are_known ? run_->feed->rows(m) : 0);
  Examiner* const examiner = run_->examiner;
  const int end = std::max(parts_.job_layers, parts_.end);  // the index after all layers
  if (examiner) examiner->Enters(parts_.loss_label, end, number(), m, output);
  Tensors exact;
  const auto compute = [&] {
    LossValue loss;
    if (in_chunks) {
      loss = LossInChunks(m, output[0], *in_chunks);
    } else {
      exact = is_half() ? WithType(output, parts_.types.compute, at::kFloat) : output;
      loss = parts_.loss->Compute(exact, micro_batch.target);
      if (run_->count_hits) micro_batch.hits = parts_.loss->CountHits(exact, micro_batch.target);
    }
    WarnWithoutGradient(output, loss.sum);
    micro_batch.segments.back().roots = RootsOf({loss.sum});
    micro_batch.loss = {loss.sum.detach(), loss.weight, loss.device_weight};
    micro_batch.loss_parts = loss_parts.Take();
  };
  const auto where = [&] { return LossOf(m); };
  TranslateErrors(where, [&] { CheckAt(where, compute); });
  if (run_->reader) {
    const auto metrics = [&] { return Str("metrics (stage ", number(), ", micro-batch ", m, ")"); };
    TranslateErrors(metrics, [&] {
      run_->reader->Read(m, parts_.loss->WholeOutput(exact), micro_batch.target);
    });
  }
  if (!examiner) return;
  examiner->LeavesLoss(parts_.loss_label, end, number(), m, micro_batch.loss, micro_batch.target);
}

/// The loss of the micro-batch, whose last layer has the input `x`, in chunks. Counts its hits.
LossValue Stage::LossInChunks(int m, const at::Tensor& x, const Pass& pass) {
  MicroBatch& micro_batch = micro_batches_[m];
  StageLayer& head = parts_.layers.back();
  const NamedRange range(head.label.c_str());
  ChunkedHead::Result result = parts_.chunked_head->Compute(
      *head.layer, x, micro_batch.target[0], pass, {run_->loss_scale, run_->count_hits});
  micro_batch.hits = std::move(result.hits);
  return std::move(result.loss);
}

/// Warns once about a loss that depends on no parameter (argmax(), detach(), item()): it would
/// train nothing without any error.
void Stage::WarnWithoutGradient(const Tensors& output, const at::Tensor& sum) {
  const auto has_one = [](const at::Tensor& x) { return x.requires_grad(); };
  if (!at::GradMode::is_enabled() || sum.requires_grad() || has_warned_) return;
  if (std::ranges::none_of(output, has_one)) return;
  has_warned_ = true;
  STRATA_LOG(kWarning) << parts_.loss_label << " depends on no parameter: nothing learns from it";
}

void Stage::RunBackward(int m, bool defer_weights) {
  MicroBatch& micro_batch = micro_batches_[m];
  micro_batch.weight_gradients->set_deferred(defer_weights);
  Tensors gradients = is_last() ? Tensors{at::full_like(micro_batch.loss.sum, run_->loss_scale)}
                                : *std::exchange(micro_batch.output_gradient, {});
  for (size_t k = parts_.segments.size(); k-- > 0;) {
    if (!micro_batch.segments[k].has_graph) RunSegment(m, k, Run::kAgain);
    gradients = RunBackward(m, k, gradients);
    if (passed_ && k > 0) (*passed_)(parts_.layers[parts_.segments[k].begin].index);
  }
  micro_batch.segments.clear();
  micro_batch.target.clear();
  micro_batch.input_gradient = std::move(gradients);
}

/// Runs the backward of segment k. Returns the gradients of its input; empty if they are not
/// needed.
Tensors Stage::RunBackward(int m, size_t k, const Tensors& gradients) {
  SegmentState& kept = micro_batches_[m].segments[k];
  const std::vector<torch::autograd::Edge> outputs = std::exchange(kept.roots, {});
  STRATA_CHECK(gradients.size() == outputs.size())
      << gradients.size() << " gradients for " << outputs.size() << " outputs of stage " << number()
      << ", micro-batch " << m;
  torch::autograd::edge_list roots;
  torch::autograd::variable_list inputs;
  for (size_t i = 0; i < outputs.size(); ++i) {
    // Nothing before this output needs a gradient, or nothing after it gave one.
    if (!outputs[i].is_valid() || IsAbsent(gradients[i])) continue;
    roots.push_back(outputs[i]);
    inputs.push_back(gradients[i]);
  }
  TranslateErrors([&] { return Str("stage ", number(), ", backward of micro-batch ", m); },
                  [&] {
                    if (roots.empty()) return;
                    if (roots.size() == 1 && RunStraightBackward(roots[0], inputs[0])) return;
                    torch::autograd::Engine::get_default_engine().execute(
                        roots, inputs, /*keep_graph=*/false, /*create_graph=*/false,
                        /*accumulate_grad=*/true);
                  });
  const Tensors input = std::exchange(kept.input, {});
  return has_gradient(k) ? TakeGradients(input) : Tensors();
}

Tensors Stage::InComputeType(Tensors tensors) const {
  return is_half() ? WithType(std::move(tensors), at::kFloat, parts_.types.compute) : tensors;
}

void Stage::CheckOutput(int m, const Tensors& output) const {
  TensorSpecs expected = (*run_->boundaries[m])[number() + 1];
  if (parts_.output_parts > 1) expected[0].shape.back() /= parts_.output_parts;
  if (Fits(output, expected)) return;
  const std::string label =
      parts_.layers.empty() ? Str("stage ", number()) : parts_.layers.back().label;
  throw ConfigError(
      Str(label, " gives ", ToString(SpecsOf(output)), ", the plan has ", ToString(expected),
          "; where a stage ends, shapes must follow from the input's shapes, not from its values: ",
          "cut elsewhere, or make one function of this layer and the next"));
}

}  // namespace strata
