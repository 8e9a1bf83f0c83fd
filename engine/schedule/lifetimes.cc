#include "engine/schedule/lifetimes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "engine/base/check.h"
#include "engine/schedule/row_walk.h"

namespace strata::schedule {
namespace {

// Measures the span of micro-batches that are open at the same time, for each stage and buffer. If
// `slots` are given, also notes the first overwrite. Opening an open buffer and closing a closed
// one have no effect. A close moves the ends of the span inwards, so the time is linear if the
// spans are short.
class Spans {
 public:
  explicit Spans(const Program& program, std::vector<int> slots = {})
      : slots_(std::move(slots)),
        micro_batches_(std::max(program.micro_batches, 0)),
        open_(static_cast<size_t>(program.stages()) * micro_batches_, 0),
        windows_(static_cast<size_t>(program.stages()) * kBufferKinds),
        largest_(program.stages(), 0) {}

  void Open(int position, Buffer buffer, int s, int m) {
    uint8_t& open = open_[Index(s, m)];
    if (open & Bit(buffer)) return;
    open |= Bit(buffer);
    Window& window = WindowOf(buffer, s);
    if (!slots_.empty()) Fill(position, buffer, s, m, window);
    window.low = std::min(window.low, m);
    window.high = std::max(window.high, m);
    largest_[s] = std::max(largest_[s], window.high - window.low + 1);
  }

  void Close(Buffer buffer, int s, int m) {
    uint8_t& open = open_[Index(s, m)];
    if (!(open & Bit(buffer))) return;
    open &= ~Bit(buffer);
    Window& window = WindowOf(buffer, s);
    const auto is_open = [&](int i) { return open_[Index(s, i)] & Bit(buffer); };
    while (window.low <= window.high && !is_open(window.low)) ++window.low;
    while (window.low <= window.high && !is_open(window.high)) --window.high;
    if (window.low > window.high) window = Window();
  }

  const std::vector<int>& largest() const { return largest_; }

  // Returns the first overwrite since the last call; its position is -1 if there was none.
  Overwrite TakeFirst() { return std::exchange(first_, kNone); }

 private:
  static constexpr Overwrite kNone = {.position = -1};

  // The lowest and the highest open micro-batch. high < 0: none is open.
  struct Window {
    int low = std::numeric_limits<int>::max();
    int high = -1;
  };

  // Notes an overwrite if an open micro-batch in `window` has the same slot as m.
  void Fill(int position, Buffer buffer, int s, int m, const Window& window) {
    if (window.high < 0) return;
    const int count = slots_[s];
    const int first = window.low + ((m - window.low) % count + count) % count;
    for (int other = first; other <= window.high; other += count) {
      const bool is_held = other != m && open_[Index(s, other)] & Bit(buffer);
      if (is_held && first_.position < 0) {
        first_ = {0, position, buffer, s, m % count, other, m};
      }
    }
  }

  static uint8_t Bit(Buffer buffer) { return uint8_t(1u << static_cast<int>(buffer)); }
  size_t Index(int s, int m) const { return static_cast<size_t>(s) * micro_batches_ + m; }
  Window& WindowOf(Buffer buffer, int s) {
    return windows_[static_cast<size_t>(s) * kBufferKinds + static_cast<int>(buffer)];
  }

  const std::vector<int> slots_;  // per stage
  const int micro_batches_;
  std::vector<uint8_t> open_;  // by stage and micro-batch: one bit for each kind of buffer
  std::vector<Window> windows_;
  std::vector<int> largest_;  // the largest span, per stage
  Overwrite first_ = kNone;
};

// Opens and closes the buffers of a rank's row in `spans`. A compute-only program has no sends, so
// an output is kept only if a neighbour on the same rank reads it.
void FillBuffers(const Program& program, const RowWalk& walk, int rank, Spans& spans) {
  const bool is_lowered = HasCommunication(program);
  walk.Over(rank, [&](const Step& step) {
    const Kind kind = step.part.kind;
    const int s = step.stage(), m = step.micro_batch(), at = step.position;
    const bool is_forward = kind == Kind::kForward;
    const Buffer given = is_forward ? Buffer::kOutput : Buffer::kInputGrad;
    if (is_forward || kind == Kind::kRecvF) spans.Open(at, Buffer::kInput, s, m);
    if (kind == Kind::kRecvB) spans.Open(at, Buffer::kOutputGrad, s, m);
    if (GivesInputGrad(kind)) spans.Close(Buffer::kOutputGrad, s, m);
    if (step.takes() == Passage::kLocal) {
      spans.Close(given, SenderOf(ReadBy(step.part).direction, s), m);
    }
    const Passage gives = step.gives();
    if (gives == Passage::kLocal || (gives == Passage::kAfar && is_lowered)) {
      spans.Open(at, given, s, m);
    }
    if (kind == Kind::kSendF) spans.Close(Buffer::kOutput, s, m);
    if (kind == Kind::kSendB) spans.Close(Buffer::kInputGrad, s, m);
    if (GivesWeightGrad(kind) || (is_forward && !program.is_training)) {
      spans.Close(Buffer::kInput, s, m);
    }
  });
}

}  // namespace

std::vector<int> StageBuffers(const Program& program) {
  Spans spans(program);
  const RowWalk walk(program);
  for (int rank = 0; rank < program.ranks(); ++rank) FillBuffers(program, walk, rank, spans);
  std::vector<int> buffers = spans.largest();
  for (int& n : buffers) n = std::max(n, 2);
  return buffers;
}

std::vector<int> Buffers(const Program& program) {
  const std::vector<int> of_stages = StageBuffers(program);
  std::vector<int> buffers(program.ranks(), 0);
  for (int s = 0; s < program.stages(); ++s) buffers[program.stage_ranks[s]] += of_stages[s];
  return buffers;
}

std::vector<int> PeakActivations(const Program& program) {
  std::vector<int> peaks;
  const RowWalk walk(program);
  for (int rank = 0; rank < program.ranks(); ++rank) {
    int64_t alive = 0, peak = 0;
    walk.Over(rank, [&](const Step& step) {
      const bool keeps = program.is_training && !step.is_recomputed;
      if (step.part.kind == Kind::kForward) peak = std::max(peak, alive + 1);
      alive += step.Change({.kept = keeps ? 1 : 0, .recomputed = 1, .deferred = 1});
      peak = std::max(peak, alive);
    });
    peaks.push_back(static_cast<int>(peak));
  }
  return peaks;
}

std::vector<Overwrite> FindOverwrites(const Program& program,
                                      const std::vector<int>& stage_buffers) {
  STRATA_CHECK(static_cast<int>(stage_buffers.size()) == program.stages())
      << stage_buffers.size() << " counts for " << program.stages() << " stages";
  for (const int count : stage_buffers) STRATA_CHECK(count > 0) << "a stage needs slots";
  Spans spans(program, stage_buffers);
  const RowWalk walk(program);
  std::vector<Overwrite> overwrites;
  for (int rank = 0; rank < program.ranks(); ++rank) {
    FillBuffers(program, walk, rank, spans);
    Overwrite first = spans.TakeFirst();
    if (first.position < 0) continue;
    first.rank = rank;
    overwrites.push_back(first);
  }
  return overwrites;
}

}  // namespace strata::schedule
