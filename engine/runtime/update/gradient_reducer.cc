// Cuts each flat buffer into pieces of kBucketBytes, which are summed by one collective each, and
// into one share per replica. Pieces start in descending order of their first layer, because a
// backward completes the last layers first. With ZeRO-1 a piece is reduce-scattered to the shares
// that overlap it, otherwise all-reduced. Await() waits for the collectives in the order in which
// they started.
#include "engine/runtime/update/gradient_reducer.h"

#include <ATen/ops/cat.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/runtime/update/reductions.h"

namespace strata {
namespace {

using Kind = Collective::Kind;

/// The positions at which shares may begin, ascending, followed by the end.
std::vector<int64_t> PossibleCuts(const FlatParameters& parameters, size_t buffer) {
  std::vector<int64_t> cuts;
  for (const PlacedParameter& parameter : parameters.parameters()) {
    if (parameter.buffer != static_cast<int>(buffer)) continue;
    for (int64_t i = 0; i < parameter.value.numel(); i += kSquareChunk) {
      cuts.push_back(parameter.offset + i);
    }
  }
  cuts.push_back(parameters.buffers()[buffer].values.numel());
  return cuts;
}

int64_t NearestTo(int64_t target, const std::vector<int64_t>& cuts) {
  const auto above = std::ranges::lower_bound(cuts, target);
  if (above == cuts.begin()) return *above;
  return *above - target <= target - *(above - 1) ? *above : *(above - 1);
}

}  // namespace

std::vector<int64_t> ShareBounds(const FlatParameters& parameters, size_t buffer, int replicas) {
  const std::vector<int64_t> cuts = PossibleCuts(parameters, buffer);
  std::vector<int64_t> bounds = {0};
  for (int i = 1; i < replicas; ++i) {
    bounds.push_back(NearestTo(cuts.back() * i / replicas, cuts));
  }
  bounds.push_back(cuts.back());
  return bounds;
}

GradientReducer::GradientReducer(int stage, FlatParameters& parameters, Group* replicas, bool zero1,
                                 at::ScalarType travels)
    : parameters_(parameters),
      replicas_(replicas),
      zero1_(zero1 && replicas != nullptr),
      travels_(travels),
      reduces_{stage, "REDUCE_GRAD"},
      gathers_{stage, "GATHER_VALUES"},
      averages_{stage, "AVERAGE_STATE"} {
  for (size_t i = 0; i < parameters.buffers().size(); ++i) {
    bounds_.push_back(ShareBounds(parameters, i, replicas ? replicas->size() : 1));
    if (replicas) AddPieces(i);
  }
  std::ranges::stable_sort(pieces_, std::greater<>(), &Piece::first_layer);
}

/// Cuts the buffer into pieces of kBucketBytes and finds the first layer in each.
void GradientReducer::AddPieces(size_t buffer) {
  const at::Tensor& gradients = parameters_.buffers()[buffer].gradients;
  const int64_t size = kBucketBytes / gradients.element_size();
  const auto count = static_cast<size_t>((gradients.numel() + size - 1) / size);
  const size_t first = pieces_.size();
  for (size_t i = 0; i < count; ++i) {
    const int64_t begin = static_cast<int64_t>(i) * size;
    pieces_.push_back({buffer, begin, std::min(begin + size, gradients.numel()),
                       std::numeric_limits<int>::max()});
  }
  for (const PlacedParameter& parameter : parameters_.parameters()) {
    if (parameter.buffer != static_cast<int>(buffer)) continue;
    const bool is_early = parameter.tie.empty() && !parameter.partial_grad;
    const int64_t last = parameter.offset + std::max<int64_t>(parameter.value.numel(), 1) - 1;
    for (int64_t i = parameter.offset / size; i <= last / size; ++i) {
      int& layer = pieces_[first + static_cast<size_t>(i)].first_layer;
      layer = std::min(layer, is_early ? parameter.layer : -1);
    }
  }
}

void GradientReducer::Start() {
  StartFrom(-1);
  started_ = 0;
}

void GradientReducer::StartFrom(int layer) {
  while (started_ < pieces_.size() && pieces_[started_].first_layer >= layer) {
    StartSum(pieces_[started_++]);
  }
}

void GradientReducer::StartSum(const Piece& piece) {
  const at::Tensor& gradients = parameters_.buffers()[piece.buffer].gradients;
  const at::Tensor whole = gradients.narrow(0, piece.begin, piece.end - piece.begin);
  if (!zero1_) {
    return StartSum({.kind = Kind::kAllReduce, .input = whole, .output = whole, .bounds = {}});
  }
  std::vector<int64_t> bounds = bounds_[piece.buffer];
  for (int64_t& bound : bounds) {
    bound = std::clamp(bound, piece.begin, piece.end) - piece.begin;
  }
  const int place = replicas_->place();
  const at::Tensor share = whole.narrow(0, bounds[place], bounds[place + 1] - bounds[place]);
  StartSum({.kind = Kind::kReduceScatter, .input = whole, .output = share, .bounds = bounds});
}

void GradientReducer::StartSum(Collective collective) {
  const at::Tensor result = collective.output;
  const bool in_place = collective.input.is_same(result);
  // Gradients of layers that compute in float64 are sent as float64.
  const at::ScalarType travels = result.scalar_type() == at::kDouble ? at::kDouble : travels_;
  collective.input = collective.input.to(travels);
  if (in_place) {
    collective.output = collective.input;
  } else if (result.scalar_type() != travels) {
    collective.output = result.to(travels);
  }
  sums_.push_back({replicas_->Start(collective), collective.output, result});
}

void GradientReducer::Await(Progress& progress) {
  if (sums_.empty()) return;
  progress.WaitFor(&reduces_, &replicas_->awaited());
  for (const Sum& sum : std::exchange(sums_, {})) {
    sum.pending->Wait();
    if (!sum.travelled.is_same(sum.result)) sum.result.copy_(sum.travelled);
  }
  progress.Compute();
}

std::vector<FlatBuffer> GradientReducer::updated() const {
  std::vector<FlatBuffer> buffers = parameters_.buffers();
  if (!zero1_) return buffers;
  for (size_t i = 0; i < buffers.size(); ++i) {
    buffers[i].values = Share(buffers[i].values, i);
    buffers[i].gradients = Share(buffers[i].gradients, i);
    buffers[i].copy = nullptr;  // the other shares come after the update
  }
  return buffers;
}

std::vector<ParameterShare> GradientReducer::shares() const {
  const int place = replicas_ ? replicas_->place() : 0;
  std::vector<ParameterShare> shares;
  const auto& parameters = parameters_.parameters();
  for (size_t k = 0; k < parameters.size(); ++k) {
    const PlacedParameter& parameter = parameters[k];
    if (parameter.buffer < 0) continue;  // frozen, or a tie's later use
    const std::vector<int64_t>& bounds = bounds_[parameter.buffer];
    const int64_t begin = std::max(parameter.offset, bounds[place]);
    const int64_t end = std::min(parameter.offset + parameter.value.numel(), bounds[place + 1]);
    if (begin >= end) continue;
    shares.push_back(
        {k, begin - parameter.offset,
         parameters_.buffers()[parameter.buffer].gradients.narrow(0, begin, end - begin)});
  }
  return shares;
}

void GradientReducer::GatherValues(Progress& progress) {
  Gather(&FlatBuffer::values, gathers_, progress);
}

void GradientReducer::GatherGradients(Progress& progress) {
  Gather(&FlatBuffer::gradients, reduces_, progress);
}

void GradientReducer::Gather(at::Tensor FlatBuffer::*which, const Doing& doing,
                             Progress& progress) {
  if (!zero1_) return;
  progress.WaitFor(&doing, &replicas_->awaited());
  for (size_t i = 0; i < bounds_.size(); ++i) {
    const at::Tensor& whole = parameters_.buffers()[i].*which;
    replicas_->Run({.kind = Kind::kAllGather,
                    .input = Share(whole, i),
                    .output = whole,
                    .bounds = bounds_[i]});
  }
  progress.Compute();
}

at::Tensor GradientReducer::Share(const at::Tensor& flat, size_t buffer) const {
  const std::vector<int64_t>& bounds = bounds_[buffer];
  const int place = replicas_->place();
  return flat.narrow(0, bounds[place], bounds[place + 1] - bounds[place]);
}

void GradientReducer::AverageState(Progress& progress) {
  const std::vector<at::Tensor>& state = parameters_.state();
  if (!replicas_ || state.empty()) return;
  progress.WaitFor(&averages_, &replicas_->awaited());
  // In float64 the mean of equal float32 values is exactly that value, so state that no layer
  // writes stays unchanged.
  std::vector<at::Tensor> flat;
  for (const at::Tensor& tensor : state) flat.push_back(tensor.reshape(-1).to(at::kDouble));
  const at::Tensor all = at::cat(flat);
  replicas_->AllReduce(all, ReduceOp::kAvg);
  int64_t next = 0;
  for (const at::Tensor& tensor : state) {
    tensor.copy_(all.narrow(0, next, tensor.numel()).view_as(tensor));
    next += tensor.numel();
  }
  progress.Compute();
}

}  // namespace strata
