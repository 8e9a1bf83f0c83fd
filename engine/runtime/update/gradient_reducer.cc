// Cuts each block of gradients into pieces of kBucketBytes, which are summed by one collective
// each, and each flat buffer into one share per replica. Pieces start in descending order of their
// first layer, because a backward completes the last layers first. With ZeRO a piece is
// reduce-scattered to the shares that overlap it, otherwise all-reduced. Await() waits for the
// collectives in the order in which they started.
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

GradientReducer::GradientReducer(int stage, FlatParameters& parameters, Group* replicas,
                                 bool shards, at::ScalarType travels)
    : parameters_(parameters),
      replicas_(replicas),
      shards_(shards && replicas != nullptr),
      travels_(travels),
      reduces_{stage, "REDUCE_GRAD"},
      gathers_{stage, "GATHER_VALUES"},
      averages_{stage, "AVERAGE_STATE"} {
  for (size_t i = 0; i < parameters.buffers().size(); ++i) {
    bounds_.push_back(ShareBounds(parameters, i, replicas ? replicas->size() : 1));
  }
  AddShares();
  for (size_t i = 0; i < parameters.blocks().size() && replicas; ++i) AddPieces(i);
  std::ranges::stable_sort(pieces_, std::greater<>(), &Piece::first_layer);
}

/// Makes the places of this replica's sums of blocks that come late.
void GradientReducer::AddShares() {
  for (GradientBlock& block : parameters_.blocks()) {
    const Range range = ShareOf(block);
    if (!block.memory || range.size() == 0) continue;
    block.share = std::make_shared<LateMemory>(range.size(), block.gradients.options());
  }
}

/// Cuts the block into pieces of kBucketBytes and finds the first layer in each. A block that comes
/// late is complete as a whole.
void GradientReducer::AddPieces(size_t index) {
  const GradientBlock& block = parameters_.blocks()[index];
  const int64_t size = kBucketBytes / block.gradients.element_size();
  const size_t first = pieces_.size();
  for (int64_t begin = block.begin; begin < block.end; begin += size) {
    pieces_.push_back({.block = index,
                       .begin = begin,
                       .end = std::min(begin + size, block.end),
                       .first_layer = std::numeric_limits<int>::max()});
  }
  const std::span<Piece> pieces = std::span(pieces_).subspan(first);
  for (const PlacedParameter& parameter : parameters_.parameters()) {
    if (parameter.buffer != static_cast<int>(block.buffer)) continue;
    if (parameter.offset < block.begin || parameter.offset >= block.end) continue;
    const bool is_early = parameter.tie.empty() && !parameter.partial_grad;
    const int64_t end = parameter.offset + std::max<int64_t>(parameter.value.numel(), 1);
    for (Piece& piece : pieces) {
      const bool is_here = piece.begin < end && parameter.offset < piece.end;
      if (!is_here && !block.memory) continue;
      piece.first_layer = std::min(piece.first_layer, is_early ? parameter.layer : -1);
    }
  }
  if (block.memory && !pieces.empty()) pieces.back().ends_block = true;
}

void GradientReducer::Start(Progress* progress) {
  StartFrom(-1, progress);
  started_ = 0;
}

void GradientReducer::StartFrom(int layer, Progress* progress) {
  size_t of_block = 0;  // sums that were started for the current block
  while (started_ < pieces_.size() && pieces_[started_].first_layer >= layer) {
    const Piece& piece = pieces_[started_++];
    StartSum(piece);
    ++of_block;
    if (!piece.ends_block) continue;
    if (progress) FinishAllBut(of_block, *progress);
    of_block = 0;
  }
}

std::vector<int64_t> GradientReducer::BoundsIn(const Piece& piece) const {
  std::vector<int64_t> bounds = bounds_[parameters_.blocks()[piece.block].buffer];
  for (int64_t& bound : bounds) {
    bound = std::clamp(bound, piece.begin, piece.end) - piece.begin;
  }
  return bounds;
}

/// The elements of the block that are in this replica's share, counted in the buffer.
GradientReducer::Range GradientReducer::ShareOf(const GradientBlock& block) const {
  const std::vector<int64_t>& bounds = bounds_[block.buffer];
  const int place = replicas_ ? replicas_->place() : 0;
  return {std::clamp(bounds[place], block.begin, block.end),
          std::clamp(bounds[place + 1], block.begin, block.end)};
}

/// The summed gradients of a part of this replica's share of the block.
at::Tensor GradientReducer::GradientsOf(const GradientBlock& block, Range range) const {
  const bool has_own_memory = block.share && range.size() > 0;
  const at::Tensor& all = has_own_memory ? block.share->tensor() : block.gradients;
  const int64_t begin = has_own_memory ? ShareOf(block).begin : block.begin;
  return all.narrow(0, range.begin - begin, range.size());
}

void GradientReducer::StartSum(const Piece& piece) {
  GradientBlock& block = parameters_.blocks()[piece.block];
  block.is_summed = block.memory != nullptr;
  NeedZeros(block.gradients);  // no backward has added to it
  const at::Tensor whole =
      block.gradients.narrow(0, piece.begin - block.begin, piece.end - piece.begin);
  if (!shards_) {
    return StartSum({.kind = Kind::kAllReduce, .input = whole, .output = whole, .bounds = {}},
                    nullptr);
  }
  if (block.share) block.share->Allocate();
  const std::vector<int64_t> bounds = BoundsIn(piece);
  const int place = replicas_->place();
  const at::Tensor share =
      GradientsOf(block, {piece.begin + bounds[place], piece.begin + bounds[place + 1]});
  StartSum({.kind = Kind::kReduceScatter, .input = whole, .output = share, .bounds = bounds},
           piece.ends_block ? block.memory.get() : nullptr);
}

void GradientReducer::StartSum(Collective collective, LateMemory* done) {
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
  sums_.push_back({replicas_->Start(collective), collective.output, result, done});
}

void GradientReducer::Await(Progress& progress) { FinishAllBut(0, progress); }

/// Waits for the oldest sums, until only `sums` are under way.
void GradientReducer::FinishAllBut(size_t sums, Progress& progress) {
  if (sums_.size() <= sums) return;
  progress.WaitFor(&reduces_, &replicas_->awaited());
  while (sums_.size() > sums) {
    const Sum sum = std::move(sums_.front());
    sums_.pop_front();
    sum.pending->Wait();
    if (!sum.travelled.is_same(sum.result)) sum.result.copy_(sum.travelled);
    if (sum.done) sum.done->Drop();
  }
  progress.Compute();
}

std::vector<FlatBuffer> GradientReducer::updated() const {
  std::vector<FlatBuffer> buffers = parameters_.buffers();
  if (!shards_) return buffers;
  std::vector<FlatBuffer> shares;
  for (const GradientBlock& block : parameters_.blocks()) {
    const Range range = ShareOf(block);
    if (block.memory && range.size() == 0) continue;
    const FlatBuffer& buffer = buffers[block.buffer];
    // Without a copy: the other shares come after the update.
    shares.push_back({.group = buffer.group,
                      .values = buffer.values.narrow(0, range.begin, range.size()),
                      .gradients = GradientsOf(block, range)});
  }
  return shares;
}

std::vector<ParameterShare> GradientReducer::shares() const {
  std::vector<ParameterShare> shares;
  const auto& parameters = parameters_.parameters();
  for (size_t k = 0; k < parameters.size(); ++k) {
    const PlacedParameter& parameter = parameters[k];
    for (const GradientBlock& block : parameters_.blocks()) {
      if (parameter.buffer != static_cast<int>(block.buffer)) continue;
      const Range own = ShareOf(block);
      const int64_t begin = std::max(parameter.offset, own.begin);
      const int64_t end = std::min(parameter.offset + parameter.value.numel(), own.end);
      if (begin >= end) continue;
      shares.push_back({k, begin - parameter.offset, GradientsOf(block, {begin, end})});
    }
  }
  return shares;
}

void GradientReducer::GatherValues(Progress& progress) {
  if (!shards_) return;
  progress.WaitFor(&gathers_, &replicas_->awaited());
  for (size_t i = 0; i < bounds_.size(); ++i) {
    const at::Tensor& whole = parameters_.buffers()[i].values;
    Gather(whole, bounds_[i], Share(whole, bounds_[i]));
  }
  progress.Compute();
}

void GradientReducer::GatherGradients(Progress& progress) {
  if (!shards_) return;
  progress.WaitFor(&reduces_, &replicas_->awaited());
  for (size_t i = 0; i < parameters_.blocks().size(); ++i) {
    const GradientBlock& block = parameters_.blocks()[i];
    if (block.memory) block.memory->Allocate();
    const std::vector<int64_t> bounds = BoundsIn({i, block.begin, block.end});
    Gather(block.gradients, bounds, GradientsOf(block, ShareOf(block)));
  }
  progress.Compute();
}

void GradientReducer::DropGathered() {
  for (const GradientBlock& block : parameters_.blocks()) {
    if (block.memory) block.memory->Drop();
  }
}

/// Fills `whole` with the shares of all replicas, of which this one has `own`.
void GradientReducer::Gather(const at::Tensor& whole, const std::vector<int64_t>& bounds,
                             const at::Tensor& own) {
  replicas_->Run({.kind = Kind::kAllGather, .input = own, .output = whole, .bounds = bounds});
}

at::Tensor GradientReducer::Share(const at::Tensor& whole,
                                  const std::vector<int64_t>& bounds) const {
  const int place = replicas_->place();
  return whole.narrow(0, bounds[place], bounds[place + 1] - bounds[place]);
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
