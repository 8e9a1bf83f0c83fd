// Links: the tensors (messages) that pass between stages, and the link between ranks that each
// takes.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

/// Activations go forward to the next stage, gradients backward to the previous one.
enum class Direction : uint8_t { kForward, kBackward };

/// A tensor on its way to `stage`: the stage's input (kForward) or its output's gradient
/// (kBackward).
struct Message {
  Direction direction = Direction::kForward;
  int stage = -1;
  int micro_batch = -1;
  bool operator==(const Message&) const = default;
};

/// True for F, I and B, the compute actions that read a message and give one. An overlap does so by
/// its ActionParts.
inline bool PassesMessages(Kind kind) { return kind == Kind::kForward || GivesInputGrad(kind); }

/// The message that F, I or B reads. Links::Of() gives -1 (no link) for the input of the first
/// stage and the gradient of the last.
inline Message ReadBy(const Action& part) {
  const bool is_forward = part.kind == Kind::kForward;
  return {is_forward ? Direction::kForward : Direction::kBackward, part.stage, part.micro_batch};
}

/// The stage that `stage` sends to. It does not exist if `stage` is the last of this direction.
inline int ReceiverOf(Direction direction, int stage) {
  return direction == Direction::kForward ? stage + 1 : stage - 1;
}

/// The stage that `stage` receives from. It does not exist if `stage` is the first of this
/// direction.
inline int SenderOf(Direction direction, int stage) {
  return direction == Direction::kForward ? stage - 1 : stage + 1;
}

/// The message that F, I or B gives. Its `stage` may not exist, as after the last stage.
inline Message GivenBy(const Action& part) {
  Message message = ReadBy(part);
  message.stage = ReceiverOf(message.direction, part.stage);
  return message;
}

/// The message that a SEND or RECV moves.
inline Message MovedBy(const Action& action) {
  const bool is_forward = action.kind == Kind::kSendF || action.kind == Kind::kRecvF;
  const Direction direction = is_forward ? Direction::kForward : Direction::kBackward;
  return {direction, IsSend(action.kind) ? ReceiverOf(direction, action.stage) : action.stage,
          action.micro_batch};
}

/// Where a message goes from the rank that gives it.
enum class Passage {
  kNone,   ///< nowhere: one of its ends is outside the program (the data, the loss)
  kLocal,  ///< to another stage of the same rank
  kAfar,   ///< to another rank
};
Passage PassageOf(const Program& program, const Message& message);

/// A table with a value for every message to a stage of the program.
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

/// The actions that move a message: SEND at the sender, RECV at the receiver.
Action SendOf(const Message& message);
Action RecvOf(const Message& message);

/// The links of a program: one for each direction and each ordered pair of ranks between which
/// tensors pass; first in, first out. Their order depends only on the program's map of stages, so
/// all ranks open them in the same order. An evaluation program also has links for gradients, and
/// does not use them.
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

  /// The link that carries the messages to `stage`; -1 if they come from the same rank or do not
  /// exist. `stage` may be any number.
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
