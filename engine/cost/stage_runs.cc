#include "engine/cost/stage_runs.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

// How memory is counted. Autograd keeps tensors from forward to backward: the inputs and outputs of
// layers, and what layers keep beside them (LayerCost). KeptUpTo() walks the layers of a run once
// and counts each memory (StageTensors) only once, whichever layers keep it. ForwardPeak() and
// BackwardPeak() add to this what exists only while one layer runs, and the values of connections
// and their gradients that pass the layer by. A run that is recomputed holds only its input, and in
// its backward it has the peak of a forward first. StageRuns::Add() then puts a run in front of the
// sum of the runs behind it: all that the run keeps is held while those run, and what both hold, as
// its output, is counted once. Each run costs time proportional to its layers.

namespace strata {
namespace {

bool IsSegment(std::span<const int> segments, int layer) {
  return !segments.empty() && segments[layer] >= 0;
}

}  // namespace

std::vector<Run> RunsOf(int begin, int end, std::span<const int> segments) {
  std::vector<Run> runs;
  for (int i = begin; i < end; ++i) {
    const bool is_recomputed = IsSegment(segments, i);
    const bool goes_on =
        i > begin && (is_recomputed ? segments[i] == segments[i - 1] : !IsSegment(segments, i - 1));
    if (goes_on) {
      runs.back().end = i + 1;
    } else {
      runs.push_back({i, i + 1, is_recomputed});
    }
  }
  return runs;
}

/// Which memories a run holds: at first its input, later what its graph keeps too.
class StageRuns::Keeper {
 public:
  Keeper(const StageTensors& tensors, const Run& run)
      : tensors_(tensors), holds_(static_cast<size_t>(tensors.count()), false) {
    HoldPlace(run.begin);
    input_bytes_ = std::exchange(bytes_, 0);
  }

  int64_t input_bytes() const { return input_bytes_; }
  int64_t bytes() const { return bytes_; }  ///< of what the graph keeps, beside the input
  void Add(int64_t bytes) { bytes_ += bytes; }

  void Hold(int memory) {
    if (std::exchange(holds_[static_cast<size_t>(memory)], true)) return;
    bytes_ += tensors_.bytes(memory);
  }
  void HoldPlace(int place) {
    tensors_.ForEachAt(place, [&](int memory) { Hold(memory); });
  }

  /// The bytes that are not held of the memories at these places, each once.
  int64_t MissingAt(std::initializer_list<int> places) {
    int64_t missing = 0;
    for (const int place : places) {
      tensors_.ForEachAt(place, [&](int memory) {
        if (std::exchange(holds_[static_cast<size_t>(memory)], true)) return;
        missing += tensors_.bytes(memory);
        marked_.push_back(memory);
      });
    }
    for (const int memory : marked_) holds_[static_cast<size_t>(memory)] = false;
    marked_.clear();
    return missing;
  }

 private:
  const StageTensors& tensors_;
  std::vector<char> holds_;
  std::vector<int> marked_;  ///< by MissingAt(), while it runs
  int64_t bytes_ = 0, input_bytes_ = 0;
};

StageRuns::StageRuns(const ModelCosts& costs, int begin, int end)
    : costs_(costs),
      begin_(begin),
      end_(end),
      tensors_(costs, begin, end),
      first_learning_(FirstLearning(costs)),
      first_with_gradient_(std::clamp(first_learning_, begin, end)) {
  none_.input_bytes = tensors_.MessageBytes(begin);
  none_.output_bytes = tensors_.MessageBytes(end);
  none_.forward_peak = OutputBytes(end_ - 1);
  AddWork();
  none_.deferred_bytes = none_.input_bytes;
  for (int i = first_with_gradient_; i < end_; ++i) {
    none_.deferred_bytes += Deferred(i) - (i == begin_) * DeferredInput(i);
  }
  deferred_after_.resize(static_cast<size_t>(end_ - begin_));
  for (int i = end_ - 1; i > begin_; --i) {
    const auto at = static_cast<size_t>(i - begin_);
    deferred_after_[at - 1] = deferred_after_[at] + Deferred(i);
  }
}

void StageRuns::AddWork() {
  for (int i = begin_; i < end_; ++i) {
    const LayerCost& cost = layer(i);
    none_.forward += cost.forward;
    if (gives_gradient(i) && !in_chunks(i)) none_.input_grad += cost.input_grad;
    if (!in_chunks(i)) none_.weight_grad += cost.weight_grad;
    none_.parameters += cost.parameters;
    none_.weight_bytes += cost.weight_bytes;
    none_.gradient_bytes += cost.gradient_bytes;
    none_.buffer_bytes += cost.buffer_bytes;
    none_.extra_state_bytes += cost.extra_state_bytes;
  }
  if (!has_loss()) return;
  none_.forward += costs_.loss.forward;
  if (costs_.chunk_rows == 0) none_.input_grad += costs_.loss.input_grad;
}

/// The bytes that the run keeps with its graph before each of its layers, after the last one, and
/// with the loss.
std::vector<int64_t> StageRuns::KeptUpTo(const Run& run, Keeper& keeper) const {
  std::vector<int64_t> kept;
  for (int i = run.begin; i < run.end; ++i) {
    kept.push_back(keeper.bytes());
    Keep(i, keeper);
  }
  kept.push_back(keeper.bytes());
  kept.push_back(keeper.bytes() + (run.end == end_ ? KeptByLoss() : 0));
  return kept;
}

void StageRuns::Keep(int i, Keeper& keeper) const {
  const LayerCost& cost = layer(i);
  if (!has_graph(i)) return;
  if (cost.keeps_input) {
    const Memories& inputs = tensors_.Before(i);
    for (size_t k = 0; k < inputs.size() && inputs[k] != kNoMemory; ++k) {
      const bool is_carried = cost.carried_input > 0 && k == 1;
      if (!is_carried) keeper.Hold(inputs[k]);
    }
  }
  keeper.Add(cost.kept_bytes);
  if (cost.keeps_output && !cost.passes_input) keeper.Hold(tensors_.Before(i + 1)[0]);
}

/// The peak of the run's forward, which `keeps` a graph or not.
int64_t StageRuns::ForwardPeak(const Run& run, bool keeps) const {
  int64_t peak = 0;
  Keeper keeper(tensors_, run);
  for (int i = run.begin; i < run.end; ++i) {
    if (keeps) Keep(i, keeper);
    const int64_t passing = keeper.MissingAt({i, i + 1});
    peak = std::max(peak, keeper.bytes() + passing + layer(i).forward_scratch);
  }
  return peak;
}

/// The bytes of the gradients that exist while layer i runs backward: of its output and its input,
/// and of the values that pass it by.
int64_t StageRuns::GradientsAt(int i) const {
  const bool is_new = gives_gradient(i) && tensors_.SkipOf(i) < 0;
  return OutputBytes(i) + tensors_.PassingGradients(i) +
         (is_new ? layer(i).input_bytes - layer(i).carried_input : 0);
}

/// Walks the layers of the run backward. What is kept shrinks, gradients come and go, and if the
/// weight gradients are deferred, what they need stays. The gradients that the run is given live
/// until its backward is done, since autograd's engine does not take them over.
int64_t StageRuns::BackwardPeak(const Run& run, const std::vector<int64_t>& kept,
                                bool defers) const {
  int64_t peak = 0;
  const Given given = GivenTo(run);
  if (run.end == end_ && has_loss()) {
    // In half precision the loss takes the output as float32, so its gradient is float32 too.
    const int64_t gradient = std::max(OutputBytes(end_ - 1), costs_.loss.input_bytes);
    peak = kept.back() + costs_.loss.backward_scratch + gradient;
  }
  const int skip = tensors_.SkipOf(run.end - 1);
  for (int i = run.end - 1; i >= std::max(run.begin, first_with_gradient_); --i) {
    const LayerCost& cost = layer(i);
    const bool gives = gives_gradient(i);
    const int64_t scratch = std::max(cost.backward_scratch, gives ? cost.input_grad_scratch : 0);
    const int64_t still = kept[i - run.begin + 1];
    const int64_t deferred = defers ? deferred_after_[i - begin_] : 0;
    int64_t gradients = GradientsAt(i);
    if (i + 1 < run.end) {
      const bool is_passing = skip >= 0 && skip <= i;  // counted as the gradient of a value
      gradients += (is_passing ? 0 : given.chain) +
                   std::max<int64_t>(0, given.values - tensors_.PassingGradients(i));
    }
    peak = std::max(peak, still + deferred + gradients + scratch);
  }
  return peak;
}

RunCost StageRuns::CostOf(const Run& run) const {
  Keeper keeper(tensors_, run);
  RunCost cost;
  cost.input_bytes = keeper.input_bytes();
  if (run.is_recomputed) cost.shared_bytes = SharedWithNext(run, keeper);
  const std::vector<int64_t> kept = KeptUpTo(run, keeper);
  if (run.is_recomputed) {
    for (int i = run.begin; i < run.end; ++i) cost.recompute += layer(i).forward;
    cost.again_bytes = kept.back();
    cost.again_peak = std::max(ForwardPeak(run, /*keeps=*/true), kept.back());
    cost.again_gradients = GivenTo(run).chain + GivenTo(run).values;
    cost.again_deferred = deferred_after_[run.end - 1 - begin_];
  } else {
    cost.shared_bytes = SharedWithNext(run, keeper);
    cost.kept_bytes = kept.back();
    cost.keeps_output = run.end == end_ && layer(end_ - 1).keeps_output;
  }
  if (in_chunks(run.end - 1)) {
    Work& work = run.is_recomputed ? cost.input_grad : cost.forward;
    if (gives_gradient(run.end - 1)) work += layer(run.end - 1).input_grad;
    work += layer(run.end - 1).weight_grad;
    work += costs_.loss.input_grad;
  }
  cost.forward_peak = ForwardPeak(run, /*keeps=*/!run.is_recomputed);
  cost.backward_peak = BackwardPeak(run, kept, /*defers=*/false);
  cost.input_grad_peak = BackwardPeak(run, kept, /*defers=*/true);
  if (in_chunks(run.end - 1) && run.is_recomputed) {  // the chunks are computed after R
    const LayerCost& head = layer(run.end - 1);
    const int64_t peak = kept.back() + head.input_bytes + head.forward_scratch;
    cost.backward_peak = std::max(cost.backward_peak, peak);
    cost.input_grad_peak = std::max(cost.input_grad_peak, peak);
  }
  return cost;
}

/// The bytes of the next run's input that the run holds already.
int64_t StageRuns::SharedWithNext(const Run& run, Keeper& held) const {
  if (run.end == end_) return 0;
  return tensors_.HeldBytes(run.end) - held.MissingAt({run.end});
}

/// The gradients that the run's backward is given. The loss gives none: it makes its own.
StageRuns::Given StageRuns::GivenTo(const Run& run) const {
  if (run.end == end_ && has_loss()) return {};
  return {OutputBytes(run.end - 1), tensors_.PassingGradients(run.end - 1)};
}

StageCost StageRuns::Add(const RunCost& run, StageCost rest, bool is_last_again) {
  const bool has_again = rest.recompute_peak > 0;
  for (int64_t* held : {&rest.kept_bytes, &rest.forward_peak, &rest.backward_peak,
                        &rest.input_grad_peak, &rest.recompute_peak}) {
    if (held != &rest.recompute_peak || has_again) *held -= run.shared_bytes;
  }
  if (is_last_again) {
    // If there are no runs behind it, this changes no peak: the run's own peaks include its
    // activations.
    rest.recomputed_bytes = run.again_bytes;
    rest.backward_peak += run.again_bytes;
    rest.input_grad_peak += run.again_bytes;
  }
  // The last recomputed run is brought back by R. The backward brings back the ones before it.
  const int64_t again = is_last_again ? 0 : run.again_peak + run.again_gradients;
  const int64_t held = run.input_bytes + run.kept_bytes;
  const auto higher = [&](int64_t own, int64_t behind) {
    return std::max(run.input_bytes + own, held + behind);
  };
  rest.forward_peak = higher(run.forward_peak, rest.forward_peak);
  rest.backward_peak = higher(std::max(run.backward_peak, again), rest.backward_peak);
  rest.input_grad_peak =
      higher(std::max(run.input_grad_peak, again > 0 ? again + run.again_deferred : 0),
             rest.input_grad_peak);
  if (has_again) rest.recompute_peak += held;
  if (is_last_again) rest.recompute_peak = run.input_bytes + rest.kept_bytes + run.again_peak;
  rest.kept_bytes += held;
  rest.recompute += run.recompute;
  rest.forward += run.forward;
  rest.input_grad += run.input_grad;
  rest.keeps_output |= run.keeps_output;
  return rest;
}

}  // namespace strata
