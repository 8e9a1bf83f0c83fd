// Action: one thing that one rank does in a step, as a small value with a text form. A program has
// one row of actions for each rank; the executor is one switch over Action::kind. The text form is
// a superset of torch.distributed.pipelining's (schedules.py, _Action).
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <string_view>

namespace strata::schedule {

/// What an action does to its stage, for one micro-batch if the kind has one.
enum class Kind : uint8_t {
  kIdle,        ///< ""   a time step without work; the executor ignores it
  kForward,     ///< 2F0  forward
  kInputGrad,   ///< 2I0  backward, gradient of the input only
  kWeightGrad,  ///< 2W0  backward, gradient of the weights only, after I
  kBackward,    ///< 2B0  whole backward: I and W in one
  kRecompute,   ///< 2R0  forward again, to get the activations that F did not keep
  kOverlap,     ///< (0F3;7B1)OVERLAP_F_B  a forward and a backward of one rank side by side
  kSendF,       ///< 2SEND_F0  output of 2F0 leaves for the rank of stage 3
  kRecvF,       ///< 2RECV_F0  input of 2F0 arrives from the rank of stage 1
  kSendB,       ///< 2SEND_B0  input gradient of 2B0 or 2I0 leaves for the rank of stage 1
  kRecvB,       ///< 2RECV_B0  output gradient for 2B0 or 2I0 arrives from the rank of stage 3
  kReduceTied,  ///< 2REDUCE_TIED  gradients of tied parameters, over the stages that hold them
  kReduceGrad,  ///< 2REDUCE_GRAD  gradients of the stage, over its data-parallel replicas
  kStep,        ///< 2STEP  the optimizer's step
  kUnshard,     ///< 2UNSHARD  kept from torch's files, does nothing
  kReshard,     ///< 2RESHARD  kept from torch's files, does nothing
};

/// A value of 16 bytes, because programs have tens of millions of them. Make one with the functions
/// below or with ParseAction(). Fields that a kind does not use keep their defaults.
struct Action {
  static constexpr int kMaxStages = 32767;

  Kind kind = Kind::kIdle;
  Kind backward_kind =
      Kind::kIdle;     ///< kOverlap: the kind of the backward part, kBackward or kInputGrad
  int16_t stage = -1;  ///< kOverlap: the stage of the forward part
  int16_t backward_stage = -1;  ///< kOverlap: the stage of the backward part
  int32_t micro_batch = -1;     ///< -1 if the kind has none; kOverlap: that of the forward part
  int32_t backward_micro_batch = -1;

  bool operator==(const Action&) const = default;
};

/// Makes an action of `kind` for a stage and, if the kind has one, a micro-batch. REQUIRES: not
/// kOverlap; 0 <= stage < Action::kMaxStages.
inline Action MakeAction(int stage, Kind kind, int micro_batch = -1) {
  Action action;
  action.kind = kind;
  action.stage = static_cast<int16_t>(stage);
  action.micro_batch = micro_batch;
  return action;
}

/// Makes a forward and a backward that run side by side. Both inputs must be there before the
/// overlap starts; both outputs are there when it ends. REQUIRES: a kForward, and a kBackward or
/// kInputGrad.
Action MakeOverlap(const Action& forward, const Action& backward);

/// A range over the simple actions that an action consists of: the two parts of an overlap, forward
/// first, else the action itself (also if it is idle). `for (const Action& part :
/// ActionParts(action))`.
class ActionParts {
 public:
  explicit ActionParts(const Action& action) : parts_{action} {
    if (action.kind != Kind::kOverlap) return;
    parts_[0] = MakeAction(action.stage, Kind::kForward, action.micro_batch);
    parts_[1] =
        MakeAction(action.backward_stage, action.backward_kind, action.backward_micro_batch);
    count_ = 2;
  }
  const Action* begin() const { return parts_; }
  const Action* end() const { return parts_ + count_; }

 private:
  Action parts_[2];
  int count_ = 1;
};

/// True for F, I, W, B, R and overlaps, which occupy the rank's processor.
inline bool IsCompute(Kind kind) { return kind >= Kind::kForward && kind <= Kind::kOverlap; }
/// True for I and B, which compute the gradient of the stage's input.
inline bool GivesInputGrad(Kind kind) {
  return kind == Kind::kInputGrad || kind == Kind::kBackward;
}
/// True for W and B, which compute the gradient of the stage's weights and free its activations.
inline bool GivesWeightGrad(Kind kind) {
  return kind == Kind::kWeightGrad || kind == Kind::kBackward;
}
/// True for the four kinds that move a tensor between ranks.
inline bool IsCommunication(Kind kind) { return kind >= Kind::kSendF && kind <= Kind::kRecvB; }
inline bool IsSend(Kind kind) { return kind == Kind::kSendF || kind == Kind::kSendB; }
/// True for communication and for compute kinds except overlaps, whose parts have a micro-batch
/// each.
inline bool HasMicroBatch(Kind kind) {
  return (IsCompute(kind) && kind != Kind::kOverlap) || IsCommunication(kind);
}

/// The name of a kind: "F", "SEND_F", "OVERLAP_F_B"; "" for kIdle.
std::string_view KindName(Kind kind);

/// The text form: "2F0", "3SEND_F1", "2STEP", "(0F3;7B1)OVERLAP_F_B"; "" for an idle action.
std::string ToText(const Action& action);
std::ostream& operator<<(std::ostream& out, const Action& action);

/// The text without the stage: "F0". An overlap keeps its whole text.
std::string ToShortText(const Action& action);

/// Parses what ToText() writes; white space around the text and around its parts is ignored. Throws
/// ConfigError with the text, the fault, what was expected, and the nearest kind.
Action ParseAction(std::string_view text);

}  // namespace strata::schedule
