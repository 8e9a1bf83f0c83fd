// Links: which tensors pass between stages, and on which link between ranks.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

/// Activations go from a stage to the next, gradients to the one before.
enum class Direction : uint8_t { kForward, kBackward };

/// A tensor on its way to `stage`: its input (kForward) or its output's gradient (kBackward).
struct Message {
  Direction direction = Direction::kForward;
  int stage = -1;
  int micro_batch = -1;
  bool operator==(const Message&) const = default;
};

/// Whether a compute action (not an overlap: take its ActionParts) reads and gives a message: F, I,
/// B.
inline bool PassesMessages(Kind kind) { return kind == Kind::kForward || GivesInputGrad(kind); }

/// What F, I or B reads. The first stage reads no input and the last no gradient: Links::Of() gives
/// no link, a number below 0.
inline Message ReadBy(const Action& part) {
  const bool is_forward = part.kind == Kind::kForward;
  return {is_forward ? Direction::kForward : Direction::kBackward, part.stage, part.micro_batch};
}

/// The stage that `stage` sends to; outside the program at its ends.
inline int ReceiverOf(Direction direction, int stage) {
  return direction == Direction::kForward ? stage + 1 : stage - 1;
}

/// The stage that `stage` receives from; outside the program at its ends.
inline int SenderOf(Direction direction, int stage) {
  return direction == Direction::kForward ? stage - 1 : stage + 1;
}

/// What F, I or B gives. `stage` is outside the program at its ends.
inline Message GivenBy(const Action& part) {
  Message message = ReadBy(part);
  message.stage = ReceiverOf(message.direction, part.stage);
  return message;
}

/// What a SEND or RECV moves.
inline Message MovedBy(const Action& action) {
  const bool is_forward = action.kind == Kind::kSendF || action.kind == Kind::kRecvF;
  const Direction direction = is_forward ? Direction::kForward : Direction::kBackward;
  return {direction, IsSend(action.kind) ? ReceiverOf(direction, action.stage) : action.stage,
          action.micro_batch};
}

/// Where a message goes.
enum class Passage {
  kNone,   ///< nowhere, for one of its ends is outside the program: data, the loss
  kLocal,  ///< to another stage of the same rank
  kAfar,   ///< to another rank
};
Passage PassageOf(const Program& program, const Message& message);

/// A value for every message to a stage of the program.
template <class T>
class PerMessage {
 public:
  PerMessage(const Program& program, T value)
      : stages_(static_cast<size_t>(program.stages())),
        micro_batches_(static_cast<size_t>(program.micro_batches)),
        values_(2 * stages_ * micro_batches_, value) {}

  typename std::vector<T>::reference operator[](const Message& message) {
    return values_[Index(message)];
  }
  T operator[](const Message& message) const { return values_[Index(message)]; }

 private:
  size_t Index(const Message& message) const {
    const size_t row = static_cast<size_t>(message.direction) * stages_ + message.stage;
    return row * micro_batches_ + message.micro_batch;
  }

  const size_t stages_, micro_batches_;
  std::vector<T> values_;
};

/// The actions that move a message, at both ends.
Action SendOf(const Message& message);
Action RecvOf(const Message& message);

/// The links of a program: one per direction and ordered pair of ranks that tensors cross between,
/// first in first out. Their order follows from the program's map alone, so that all ranks can open
/// them in the same order. An evaluation program has links for gradients too and uses none of them.
class Links {
 public:
  struct Link {
    Direction direction;
    int from = 0;  ///< rank
    int to = 0;    ///< rank
  };

  explicit Links(const Program& program);

  int size() const { return static_cast<int>(links_.size()); }
  const Link& operator[](int link) const { return links_[link]; }

  /// The link of the messages to `stage`; -1 where they come from the same rank or do not exist.
  /// Any `stage` may be asked for.
  int Of(Direction direction, int stage) const {
    const std::vector<int>& links = into_[static_cast<int>(direction)];
    return stage >= 0 && stage < static_cast<int>(links.size()) ? links[stage] : -1;
  }
  int Of(const Message& message) const { return Of(message.direction, message.stage); }

 private:
  std::vector<Link> links_;
  std::vector<int> into_[2];  // by direction and receiving stage
};

}  // namespace strata::schedule
