// StepRecord: what a rank notes in a checked step.
//
// Of every message it notes the digest, where it is sent and where it is used. Of one drawn
// micro-batch of one of its stages it notes all that another rank needs to repeat its actions, and
// the digests of what they gave:
//
//   F     inputs, targets and the layers' buffers before; outputs or the loss, buffers after
//   B, I  output gradients before; input gradients after
//   B, W  the sums of weight gradients before and after
//
// Weight gradients of all micro-batches are added into the same memory, so one micro-batch's part
// cannot be seen alone: the copy of the sums from before lets the other rank add to the same sums.
// So the rank that is checked needs memory for one or two copies of the stage's gradients. A last
// layer that runs in chunks adds to them in F or R, too.
//
// Order of calls: for each action Before(), the action, After(); Sends() for each message. Then
// ToPacket().
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/runtime/check/flip.h"
#include "engine/runtime/check/tensor_packet.h"
#include "engine/runtime/stage/run_spec.h"
#include "engine/runtime/stage/stage.h"
#include "engine/schedule/action.h"

namespace strata {

/// The micro-batch of a stage whose actions another rank repeats.
struct DrawnWork {
  int stage = 0;
  int micro_batch = 0;  ///< of the replica
};

class StepRecord {
 public:
  /// `drawn`: none on ranks whose work is not repeated. `flip`: null, or what a test asks for.
  StepRecord(std::optional<DrawnWork> drawn, Flip* flip) : drawn_(drawn), flip_(flip) {}

  /// `has_message`: what the action needs came from another rank.
  void Before(Stage& stage, schedule::Kind kind, int m, bool has_message);
  /// `keep`: of a forward.
  void After(Stage& stage, schedule::Kind kind, int m, Keep keep = Keep::kActivations);
  /// A message to stage `to`: its input, or with `is_gradient` its output gradient. Returns the
  /// tensors to send.
  Tensors Sends(int to, int m, bool is_gradient, Tensors tensors);

  /// By message, "1F0" for the input of micro-batch 0 of stage 1 and "1B0" for its output gradient:
  /// the digest of what was sent, and of what was used.
  const std::map<std::string, std::string>& sent() const { return sent_; }
  const std::map<std::string, std::string>& used() const { return used_; }

  /// The work to repeat and its digests; without actions if there was none in this step. Takes the
  /// copies out of this object, so that they last no longer than the packet.
  TensorPacket ToPacket(Stage& stage, const RunSpec& run);
  const std::optional<DrawnWork>& drawn() const { return drawn_; }

 private:
  struct Action {
    schedule::Kind kind = schedule::Kind::kForward;
    Keep keep = Keep::kActivations;
    std::vector<Tensors> before;  ///< in the order of StateBefore()
    std::vector<int64_t> sums;    ///< for each weight gradient: 1 if its sum was in memory
  };

  bool IsDrawn(const Stage& stage, int m) const {
    return drawn_ && drawn_->stage == stage.number() && drawn_->micro_batch == m;
  }

  const std::optional<DrawnWork> drawn_;
  Flip* const flip_;
  std::map<std::string, std::string> sent_, used_;
  std::vector<Action> actions_;
  Digests digests_;
};

// ---- What both ends of a repetition use ----

/// True if the action may add to weight gradients.
bool AddsGradients(const Stage& stage, schedule::Kind kind);
/// The parameters of the stage that have gradients, in order.
std::vector<const PlacedParameter*> Learning(Stage& stage);
/// The sums of weight gradients that are in memory and hold something; undefined for the others.
Tensors SumsOf(Stage& stage);
/// The values of a stage: its flat buffers, then its frozen parameters, or their codes and scales.
Tensors ValuesOf(Stage& stage);
/// The buffers of its layers.
Tensors LayerBuffersOf(Stage& stage);
/// Lets `flip` hit what the action of micro-batch m gave, and appends the digests of that.
void DigestResults(Stage& stage, schedule::Kind kind, int m, Flip* flip, Digests& digests);

}  // namespace strata
