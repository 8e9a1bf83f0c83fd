#include "engine/cost/stage_runs.h"

#include <algorithm>

// How memory is counted. Autograd keeps tensors from forward to backward: the inputs and outputs of
// layers, and what layers keep beside them (LayerCost). KeptUpTo() walks the layers of a run once
// and counts a tensor between two layers only once, even if both keep it; a layer that passes its
// input on adds no tensor. ForwardPeak() and BackwardPeak() add to this what exists only while one
// layer runs. StageRuns::Add() then puts a run in front of the sum of the runs behind it: all that
// the run keeps is held while those run. Each run costs time proportional to its layers.

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

StageRuns::StageRuns(const ModelCosts& costs, int begin, int end)
    : costs_(costs), begin_(begin), end_(end), first_with_gradient_(begin) {
  while (begin == 0 && first_with_gradient_ < end && layer(first_with_gradient_).parameters == 0) {
    ++first_with_gradient_;
  }
  none_.input_bytes = layer(begin_).input_bytes;
  none_.output_bytes = layer(end_ - 1).output_bytes;
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

void StageRuns::Keep(int i, Chain& chain) const {
  const LayerCost& cost = layer(i);
  if (!has_graph(i)) {
    chain.counted &= cost.passes_input;
    return;
  }
  if (cost.keeps_input && !chain.counted) {
    chain.bytes += cost.input_bytes - cost.carried_input;
    chain.counted = true;
  }
  chain.bytes += cost.kept_bytes;
  if (cost.passes_input) return;
  chain.counted = cost.keeps_output;
  if (cost.keeps_output) chain.bytes += cost.output_bytes - cost.carried_output;
}

/// The bytes that the run keeps with its graph before each of its layers, after the last one, and
/// with the loss.
std::vector<int64_t> StageRuns::KeptUpTo(const Run& run) const {
  std::vector<int64_t> kept;
  Chain chain;
  for (int i = run.begin; i < run.end; ++i) {
    kept.push_back(chain.bytes);
    Keep(i, chain);
  }
  kept.push_back(chain.bytes);
  kept.push_back(chain.bytes + (run.end == end_ ? KeptByLoss() : 0));
  return kept;
}

int64_t StageRuns::ForwardPeak(const Run& run) const {
  int64_t peak = 0;
  Chain chain;
  for (int i = run.begin; i < run.end; ++i) {
    if (!run.is_recomputed) Keep(i, chain);
    const LayerCost& cost = layer(i);
    const int64_t passing = (chain.counted ? cost.carried_input : cost.input_bytes) +
                            OutputBytes(i) - cost.carried_output;
    peak = std::max(peak, chain.bytes + passing + cost.forward_scratch);
  }
  return peak;
}

/// Walks the layers of the run backward. What is kept shrinks, gradients come and go, and if the
/// weight gradients are deferred, what they need stays.
int64_t StageRuns::BackwardPeak(const Run& run, const std::vector<int64_t>& kept,
                                bool defers) const {
  int64_t peak = 0;
  if (run.end == end_ && has_loss()) {
    // In half precision the loss takes the output as float32, so its gradient is float32 too.
    const int64_t gradient = std::max(OutputBytes(end_ - 1), costs_.loss.input_bytes);
    peak = kept.back() + costs_.loss.backward_scratch + gradient;
  }
  for (int i = run.end - 1; i >= std::max(run.begin, first_with_gradient_); --i) {
    const LayerCost& cost = layer(i);
    const bool gives = gives_gradient(i);
    const int64_t gradients = OutputBytes(i) + (gives ? cost.input_bytes - cost.carried_input : 0);
    const int64_t scratch = std::max(cost.backward_scratch, gives ? cost.input_grad_scratch : 0);
    const int64_t still = kept[i - run.begin + 1];
    const int64_t deferred = defers ? deferred_after_[i - begin_] : 0;
    peak = std::max(peak, still + deferred + gradients + scratch);
  }
  return peak;
}

RunCost StageRuns::CostOf(const Run& run) const {
  const std::vector<int64_t> kept = KeptUpTo(run);
  RunCost cost;
  cost.input_bytes = layer(run.begin).input_bytes;
  if (run.is_recomputed) {
    for (int i = run.begin; i < run.end; ++i) cost.recompute += layer(i).forward;
    cost.again_bytes = kept.back();
  } else {
    cost.kept_bytes = kept.back();
    cost.keeps_output = run.end == end_ && layer(end_ - 1).keeps_output;
  }
  if (in_chunks(run.end - 1)) {
    Work& work = run.is_recomputed ? cost.input_grad : cost.forward;
    if (gives_gradient(run.end - 1)) work += layer(run.end - 1).input_grad;
    work += layer(run.end - 1).weight_grad;
    work += costs_.loss.input_grad;
  }
  cost.forward_peak = ForwardPeak(run);
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

StageCost StageRuns::Add(const RunCost& run, StageCost rest, bool is_last_again) {
  if (is_last_again) {
    // If there are no runs behind it, this changes no peak: the run's own peaks include its
    // activations.
    rest.recomputed_bytes = run.again_bytes;
    rest.backward_peak += run.again_bytes;
    rest.input_grad_peak += run.again_bytes;
  }
  const int64_t held = run.input_bytes + run.kept_bytes;
  const auto higher = [&](int64_t own, int64_t behind) {
    return std::max(run.input_bytes + own, held + behind);
  };
  rest.forward_peak = higher(run.forward_peak, rest.forward_peak);
  rest.backward_peak = higher(run.backward_peak, rest.backward_peak);
  rest.input_grad_peak = higher(run.input_grad_peak, rest.input_grad_peak);
  rest.kept_bytes += held;
  rest.recompute += run.recompute;
  rest.forward += run.forward;
  rest.input_grad += run.input_grad;
  rest.keeps_output |= run.keeps_output;
  return rest;
}

}  // namespace strata
