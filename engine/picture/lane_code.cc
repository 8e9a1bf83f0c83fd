#include "engine/picture/lane_code.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"

namespace strata::picture {
namespace {

using schedule::Action;
using schedule::Interval;
using schedule::Kind;

constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
constexpr uint64_t kMore = 32;
enum Flag : uint64_t { kMicroBatch = 1, kGap = 2, kDuration = 4, kMemory = 8, kFlags = 16 };

uint64_t ZigZag(int64_t n) {
  return n < 0 ? 2 * static_cast<uint64_t>(-(n + 1)) + 1 : 2 * static_cast<uint64_t>(n);
}

void Put(uint64_t number, std::string& code) {
  for (; number >= kMore; number >>= 5) code += kAlphabet[number % kMore + kMore];
  code += kAlphabet[number];
}
void PutSigned(int64_t number, std::string& code) { Put(ZigZag(number), code); }

/// One entry of the list of kinds and stages, with the values of its last action.
struct Shape {
  Action action;  // only its kinds, stages and micro-batches are used
  int64_t duration = 0;
  int64_t memory = 0;  // the change of memory
};

bool IsOf(const Shape& shape, const Action& action) {
  return shape.action.kind == action.kind && shape.action.stage == action.stage &&
         shape.action.backward_kind == action.backward_kind &&
         shape.action.backward_stage == action.backward_stage;
}

bool HasMicroBatch(const Action& action) {
  return schedule::HasMicroBatch(action.kind) || action.kind == Kind::kOverlap;
}

/// A new entry. Its micro-batches are -1, so that 0 is expected next.
Shape NewShape(const Action& action) {
  Shape shape{action};
  shape.action.micro_batch = shape.action.backward_micro_batch = -1;
  return shape;
}

/// `value` as a number of grains, rounded.
int64_t Grains(double value, double grain) { return std::llround(value / grain); }

/// Writes a lane as lane_code.h defines. It keeps a list of the kinds and stages seen so far, each
/// with the values of its last action (Shape), and writes only what differs from the expectation.
/// The time is the number of actions times the number of shapes.
class Encoder {
 public:
  Encoder(const Lane& lane, const Grain& grain)
      : lane_(lane), grain_(grain), memory_(Grains(MemoryBefore(), MemoryGrain())) {}

  void Add(size_t i) {
    const Action& action = lane_.actions[i];
    const size_t place =
        std::ranges::find_if(shapes_, [&](const Shape& shape) { return IsOf(shape, action); }) -
        shapes_.begin();
    const bool is_new = place == shapes_.size();
    if (is_new) shapes_.push_back(NewShape(action));
    Shape& shape = shapes_[place];
    uint64_t flags = 0;
    std::string rest;
    AddMicroBatches(action, shape, flags, rest);
    AddTimes(lane_.times[i], shape, flags, rest);
    if (!lane_.memory.empty()) AddMemory(lane_.memory[i], shape, flags, rest);
    Put(kFlags * place + flags, code_);
    if (is_new) Define(action);
    code_ += rest;
  }

  std::string Take() { return std::move(code_); }

 private:
  double MemoryBefore() const { return static_cast<double>(lane_.memory_before); }
  double MemoryGrain() const { return static_cast<double>(grain_.bytes); }

  void Define(const Action& action) {
    Put(static_cast<uint64_t>(action.kind), code_);
    Put(static_cast<uint64_t>(action.stage + 1), code_);
    if (action.kind != Kind::kOverlap) return;
    Put(static_cast<uint64_t>(action.backward_kind), code_);
    Put(static_cast<uint64_t>(action.backward_stage + 1), code_);
  }

  static void AddMicroBatches(const Action& action, Shape& shape, uint64_t& flags,
                              std::string& rest) {
    if (!HasMicroBatch(action)) return;
    const bool overlaps = action.kind == Kind::kOverlap;
    const int64_t step = int64_t{action.micro_batch} - shape.action.micro_batch - 1;
    const int64_t backward_step =
        overlaps ? int64_t{action.backward_micro_batch} - shape.action.backward_micro_batch - 1 : 0;
    shape.action = action;
    if (step == 0 && backward_step == 0) return;
    flags |= kMicroBatch;
    PutSigned(step, rest);
    if (overlaps) PutSigned(backward_step, rest);
  }

  void AddTimes(const Interval& time, Shape& shape, uint64_t& flags, std::string& rest) {
    const int64_t start = Grains(time.start, grain_.tick), end = Grains(time.end, grain_.tick);
    STRATA_CHECK(start >= end_ && end >= start) << time.start << " to " << time.end;
    if (start > end_) {
      flags |= kGap;
      Put(static_cast<uint64_t>(start - end_), rest);
    }
    if (end - start != shape.duration) {
      flags |= kDuration;
      PutSigned(end - start - shape.duration, rest);
    }
    shape.duration = end - start;
    end_ = end;
  }

  void AddMemory(int64_t bytes, Shape& shape, uint64_t& flags, std::string& rest) {
    const int64_t memory = Grains(static_cast<double>(bytes), MemoryGrain());
    const int64_t change = memory - memory_;
    if (change != shape.memory) {
      flags |= kMemory;
      PutSigned(change, rest);
    }
    shape.memory = change;
    memory_ = memory;
  }

  const Lane& lane_;
  const Grain& grain_;
  std::vector<Shape> shapes_;
  int64_t end_ = 0;  // when the last action ended
  int64_t memory_;
  std::string code_;
};

}  // namespace

Grain GrainOf(const Timeline& timeline) {
  Grain grain;
  const double span = timeline.span();
  if (span > 0) grain.tick = std::exp2(std::ceil(std::log2(span)) - 20);
  if (!timeline.in_seconds) return grain;
  int64_t most = 0;
  for (const Lane& lane : timeline.lanes) {
    for (const int64_t bytes : lane.memory) most = std::max(most, bytes);
  }
  grain.bytes = std::max<int64_t>(1, most / 65536);
  return grain;
}

std::string EncodeLane(const Lane& lane, const Grain& grain, const Detail& detail) {
  STRATA_CHECK(lane.actions.size() == lane.times.size());
  STRATA_CHECK(lane.memory.empty() || lane.memory.size() == lane.actions.size());
  Encoder encoder(lane, grain);
  for (size_t i = 0; i < lane.actions.size(); ++i) {
    const bool is_idle = lane.actions[i].kind == Kind::kIdle;
    if (!is_idle && detail.Shows(lane.actions[i])) encoder.Add(i);
  }
  return encoder.Take();
}

}  // namespace strata::picture
