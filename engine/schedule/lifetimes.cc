#include "engine/schedule/lifetimes.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "engine/base/check.h"

namespace strata::schedule {
namespace {

// Walks a row and tells a sink what opens and closes:
//   sink.Open(position, buffer, stage, micro_batch), sink.Close(buffer, stage, micro_batch)
// Opening what is open and closing what is not mean nothing.
template <class Sink>
class Walker {
 public:
  Walker(const Program& program, Sink& sink)
      : program_(program), is_lowered_(HasCommunication(program)), sink_(sink) {}

  void Walk(int rank) {
    int position = 0;
    for (const Action& action : program_.rows[rank]) {
      for (const Action& part : Parts(action)) {
        if (program_.has(part)) Visit(position, part);
      }
      ++position;
    }
  }

 private:
  void Visit(int position, const Action& part) {
    const int s = part.stage, m = part.micro_batch;
    switch (part.kind) {
      case Kind::kForward:
        return VisitForward(position, s, m);
      case Kind::kInputGrad:
        return VisitInputGrad(position, s, m);
      case Kind::kWeightGrad:
        return sink_.Close(Buffer::kInput, s, m);
      case Kind::kBackward:
        VisitInputGrad(position, s, m);
        return sink_.Close(Buffer::kInput, s, m);
      case Kind::kRecvF:
        return sink_.Open(position, Buffer::kInput, s, m);
      case Kind::kSendF:
        return sink_.Close(Buffer::kOutput, s, m);
      case Kind::kRecvB:
        return sink_.Open(position, Buffer::kOutputGrad, s, m);
      case Kind::kSendB:
        return sink_.Close(Buffer::kInputGrad, s, m);
      default:
        return;
    }
  }

  void VisitForward(int position, int s, int m) {
    sink_.Open(position, Buffer::kInput, s, m);
    if (IsLocalAfter(s - 1)) sink_.Close(Buffer::kOutput, s - 1, m);
    if (WaitsForReader(s)) sink_.Open(position, Buffer::kOutput, s, m);
    if (!program_.is_training) sink_.Close(Buffer::kInput, s, m);
  }

  void VisitInputGrad(int position, int s, int m) {
    sink_.Close(Buffer::kOutputGrad, s, m);
    if (IsLocalAfter(s)) sink_.Close(Buffer::kInputGrad, s + 1, m);
    if (WaitsForReader(s - 1)) sink_.Open(position, Buffer::kInputGrad, s, m);
  }

  // Whether `stage` and the next exist and share a rank.
  bool IsLocalAfter(int stage) const {
    return stage >= 0 && stage + 1 < program_.stages() && !program_.crosses_after(stage);
  }

  // Whether what passes between `stage` and the next stays until a later action of the row takes
  // it: a send, or the neighbour on the same rank. A compute-only program shows no sends.
  bool WaitsForReader(int stage) const {
    return IsLocalAfter(stage) || (is_lowered_ && stage >= 0 && program_.crosses_after(stage));
  }

  const Program& program_;
  const bool is_lowered_;
  Sink& sink_;
};

template <class Sink>
void WalkAll(const Program& program, Sink& sink) {
  Walker<Sink> walker(program, sink);
  for (int rank = 0; rank < program.ranks(); ++rank) walker.Walk(rank);
}

// A sink that measures how many neighbouring micro-batches are open at once.
class Spans {
 public:
  explicit Spans(const Program& program)
      : micro_batches_(std::max(program.micro_batches, 0)),
        open_(static_cast<size_t>(program.stages()) * micro_batches_, 0),
        windows_(static_cast<size_t>(program.stages()) * kBufferKinds),
        largest_(program.stages(), 0) {}

  void Open(int, Buffer buffer, int s, int m) {
    uint8_t& open = open_[Index(s, m)];
    if (open & Bit(buffer)) return;
    open |= Bit(buffer);
    Window& window = WindowOf(buffer, s);
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

 private:
  // The lowest and the highest open micro-batch.
  struct Window {
    int low = std::numeric_limits<int>::max();
    int high = -1;
  };

  static uint8_t Bit(Buffer buffer) { return uint8_t(1u << static_cast<int>(buffer)); }
  size_t Index(int s, int m) const { return static_cast<size_t>(s) * micro_batches_ + m; }
  Window& WindowOf(Buffer buffer, int s) {
    return windows_[static_cast<size_t>(s) * kBufferKinds + static_cast<int>(buffer)];
  }

  const int micro_batches_;
  std::vector<uint8_t> open_;  // by stage and micro-batch, a bit per buffer
  std::vector<Window> windows_;
  std::vector<int> largest_;  // per stage
};

// A sink that fills slots and notes what it overwrites.
class Slots {
 public:
  explicit Slots(const std::vector<int>& counts) : counts_(counts) {
    for (int count : counts) {
      STRATA_CHECK(count > 0) << "a stage needs slots";
      slots_.emplace_back(static_cast<size_t>(count) * kBufferKinds, -1);
    }
  }

  void Open(int position, Buffer buffer, int s, int m) {
    int& held = SlotOf(buffer, s, m);
    if (held >= 0 && held != m && first_.position < 0) {
      first_ = {0, position, buffer, s, m % counts_[s], held, m};
    }
    held = m;
  }

  void Close(Buffer buffer, int s, int m) {
    int& held = SlotOf(buffer, s, m);
    if (held == m) held = -1;
  }

  // The first overwrite since the last call; its position is -1 when there was none.
  Overwrite TakeFirst() { return std::exchange(first_, kNone); }

 private:
  static constexpr Overwrite kNone = {.position = -1};

  int& SlotOf(Buffer buffer, int s, int m) {
    return slots_[s][static_cast<size_t>(m % counts_[s]) * kBufferKinds + static_cast<int>(buffer)];
  }

  const std::vector<int>& counts_;
  std::vector<std::vector<int>> slots_;  // per stage: the micro-batch in each slot, or -1
  Overwrite first_ = kNone;
};

// The pairs of stage and micro-batch that the program recomputes.
class Recomputed {
 public:
  explicit Recomputed(const Program& program) : program_(program) {
    for (const auto& row : program.rows) {
      for (const Action& action : row) {
        if (action.kind == Kind::kRecompute && program.has(action)) Add(action);
      }
    }
  }

  bool Has(const Action& part) const {
    return !pairs_.empty() && program_.has(part) && pairs_[Index(part)];
  }

 private:
  size_t Index(const Action& part) const {
    return static_cast<size_t>(part.stage) * program_.micro_batches + part.micro_batch;
  }

  void Add(const Action& part) {
    pairs_.resize(static_cast<size_t>(program_.stages()) * program_.micro_batches);
    pairs_[Index(part)] = true;
  }

  const Program& program_;
  std::vector<bool> pairs_;  // empty where nothing is recomputed
};

int PeakOfRow(const std::vector<Action>& row, bool is_training, const Recomputed& recomputed) {
  int alive = 0, peak = 0;
  for (const Action& action : row) {
    for (const Action& part : Parts(action)) {
      const bool is_forward = part.kind == Kind::kForward;
      if (is_forward || part.kind == Kind::kRecompute) peak = std::max(peak, ++alive);
      const bool keeps_nothing = is_forward && (!is_training || recomputed.Has(part));
      if (keeps_nothing || GivesWeightGrad(part.kind)) --alive;
    }
  }
  return peak;
}

}  // namespace

std::vector<int> StageBuffers(const Program& program) {
  Spans spans(program);
  WalkAll(program, spans);
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
  const Recomputed recomputed(program);
  std::vector<int> peaks;
  for (const auto& row : program.rows) {
    peaks.push_back(PeakOfRow(row, program.is_training, recomputed));
  }
  return peaks;
}

std::vector<Overwrite> FindOverwrites(const Program& program,
                                      const std::vector<int>& stage_buffers) {
  STRATA_CHECK(static_cast<int>(stage_buffers.size()) == program.stages())
      << stage_buffers.size() << " counts for " << program.stages() << " stages";
  Slots slots(stage_buffers);
  Walker<Slots> walker(program, slots);
  std::vector<Overwrite> overwrites;
  for (int rank = 0; rank < program.ranks(); ++rank) {
    walker.Walk(rank);
    Overwrite first = slots.TakeFirst();
    if (first.position < 0) continue;
    first.rank = rank;
    overwrites.push_back(first);
  }
  return overwrites;
}

}  // namespace strata::schedule
