// Proofs 1, 2, 3 and 7, which look at each row by itself. Walks each row in order and keeps one bit
// for every stage, micro-batch and kind that has run. An action is correct if the bits that it
// needs are set and its own is not. When all rows are done, bits that are missing are missing
// actions. The time is linear in the number of actions.
#include <algorithm>
#include <iterator>
#include <optional>

#include "engine/base/text.h"
#include "engine/schedule/checks.h"
#include "engine/schedule/links.h"

namespace strata::schedule {
namespace {

// The kinds that end a stage's step, in the order in which they must run.
constexpr Kind kEnds[] = {Kind::kReduceTied, Kind::kReduceGrad, Kind::kStep};

constexpr uint16_t Bit(Kind kind) { return uint16_t(1u << static_cast<int>(kind)); }
constexpr uint16_t kBackwards = Bit(Kind::kBackward) | Bit(Kind::kInputGrad);

class RowChecks {
 public:
  explicit RowChecks(const CheckContext& context)
      : context_(context),
        program_(context.program),
        links_(program_),
        done_(static_cast<size_t>(program_.stages()) * program_.micro_batches, 0),
        stages_(program_.stages()) {}

  void CheckRow(int rank) {
    rank_ = rank;
    position_ = 0;
    for (const Action& action : program_.rows[rank]) {
      if (action.kind != Kind::kIdle) CheckAction(action);
      ++position_;
    }
  }

  // Reports actions that are missing. To be called after all rows.
  void CheckNothingIsMissing() {
    for (int s = 0; s < program_.stages() && !context_.is_full(); ++s) {
      const uint16_t needed = NeededOf(s);
      for (int m = 0; m < program_.micro_batches; ++m) CheckMicroBatch(s, m, needed);
      CheckEnds(s);
    }
  }

 private:
  struct Stage {
    int weight_grads = 0;  // the number of W and B that have run
    uint16_t ends = 0;     // bits of the kEnds that have run
  };

  uint16_t& Done(int stage, int micro_batch) {
    return done_[static_cast<size_t>(stage) * program_.micro_batches + micro_batch];
  }

  void Refuse(const std::string& why) {
    context_.Refuse(rank_, position_, part_text_.empty() ? why : Str("(", part_text_, ") ", why));
  }

  // Checks the needs of both parts of an overlap before it notes what either gives.
  void CheckAction(const Action& action) {
    const ActionParts parts(action);
    for (const Action& part : parts) {
      part_text_ = action.kind == Kind::kOverlap ? ToText(part) : "";
      if (!CheckPlace(part)) return;
      if (HasMicroBatch(part.kind)) CheckNeeds(part);
    }
    for (const Action& part : parts) {
      if (HasMicroBatch(part.kind)) {
        Done(part.stage, part.micro_batch) |= Bit(part.kind);
        stages_[part.stage].weight_grads += GivesWeightGrad(part.kind);
      } else {
        CheckEnd(part);
      }
    }
  }

  bool CheckPlace(const Action& part) {
    if (part.stage < 0 || part.stage >= program_.stages()) {
      Refuse(
          Str("is of a stage that does not exist; there are ", Plural(program_.stages(), "stage")));
    } else if (!program_.has(part)) {
      Refuse(Str("is of a micro-batch that does not exist; there are ", program_.micro_batches));
    } else if (program_.stage_ranks[part.stage] != rank_) {
      Refuse(Str("is in the wrong row; stage ", part.stage, " is on rank ",
                 program_.stage_ranks[part.stage]));
    } else if (!program_.is_training && IsForTraining(part.kind)) {
      Refuse("has no place in a program that only goes forward");
    } else {
      return true;
    }
    return false;
  }

  static bool IsForTraining(Kind kind) {
    return GivesInputGrad(kind) || GivesWeightGrad(kind) || kind == Kind::kRecompute ||
           kind == Kind::kSendB || kind == Kind::kRecvB ||
           std::find(std::begin(kEnds), std::end(kEnds), kind) != std::end(kEnds);
  }

  void CheckNeeds(const Action& part) {
    const int s = part.stage, m = part.micro_batch;
    if (Done(s, m) & Bit(part.kind)) return Refuse("runs a second time");
    switch (part.kind) {
      case Kind::kForward:
        return NeedMessage(ReadBy(part), Kind::kRecvF, Bit(Kind::kForward));
      case Kind::kInputGrad:
      case Kind::kBackward:
        if (Done(s, m) & kBackwards) Refuse("goes backward a second time");
        Need(s, m, Bit(Kind::kForward));
        return NeedMessage(ReadBy(part), Kind::kRecvB, kBackwards);
      case Kind::kWeightGrad:
        return Need(s, m, Bit(Kind::kInputGrad));
      case Kind::kRecompute:
        if (Done(s, m) & kBackwards) Refuse("comes after the backward that it is for");
        return Need(s, m, Bit(Kind::kForward));
      case Kind::kSendF:
        NeedLink(MovedBy(part));
        return Need(s, m, Bit(Kind::kForward));
      case Kind::kSendB:
        NeedLink(MovedBy(part));
        return Need(s, m, kBackwards);
      default:  // RECV_F, RECV_B
        return NeedLink(MovedBy(part));
    }
  }

  // Requires that one of the kinds in `bits` has run for a stage on this rank.
  void Need(int stage, int micro_batch, uint16_t bits) {
    if (Done(stage, micro_batch) & bits) return;
    const Kind kind = bits == kBackwards ? Kind::kBackward : KindOf(bits);
    const char* alternative = bits == kBackwards ? " or I" : "";
    Refuse(Str("comes before ", MakeAction(stage, kind, micro_batch), alternative,
               ", which it needs"));
  }

  static Kind KindOf(uint16_t bit) {
    int kind = 0;
    while (bit >>= 1) ++kind;
    return static_cast<Kind>(kind);
  }

  // Requires the message that F, I or B reads. From another rank it comes by the kind `recv`; from
  // a stage on this rank, one of the kinds `givers` must have run there.
  void NeedMessage(const Message& message, Kind recv, uint16_t givers) {
    const Passage passage = PassageOf(program_, message);
    const int m = message.micro_batch;
    if (passage == Passage::kAfar && context_.is_lowered) Need(message.stage, m, Bit(recv));
    if (passage == Passage::kLocal) {
      Need(SenderOf(message.direction, message.stage), m, givers);
    }
  }

  void NeedLink(const Message& message) {
    const Passage passage = PassageOf(program_, message);
    if (passage == Passage::kAfar) return;
    Refuse(passage == Passage::kLocal
               ? Str("moves nothing: stages ", SenderOf(message.direction, message.stage), " and ",
                     message.stage, " are on the same rank")
               : "has no stage at the other end");
  }

  void CheckEnd(const Action& action) {
    const auto end = std::find(std::begin(kEnds), std::end(kEnds), action.kind);
    if (end == std::end(kEnds)) return;  // UNSHARD and RESHARD are ignored
    Stage& stage = stages_[action.stage];
    if (stage.ends & Bit(action.kind)) Refuse("runs a second time");
    for (auto later = end + 1; later != std::end(kEnds); ++later) {
      if (stage.ends & Bit(*later)) {
        Refuse(Str("comes after ", MakeAction(action.stage, *later), ", which needs it"));
      }
    }
    if (stage.weight_grads < program_.micro_batches) {
      Refuse(Str("comes before the last W or B of its stage: ", stage.weight_grads, " of ",
                 program_.micro_batches, " are done"));
    }
    stage.ends |= Bit(action.kind);
  }

  // The bits that every micro-batch of the stage must have, without those of its backward.
  uint16_t NeededOf(int stage) const {
    uint16_t needed = Bit(Kind::kForward);
    if (!context_.is_lowered) return needed;
    const auto add = [&](Direction direction, Kind recv, Kind send) {
      if (links_.Of(direction, stage) >= 0) needed |= Bit(recv);
      if (links_.Of(direction, ReceiverOf(direction, stage)) >= 0) needed |= Bit(send);
    };
    add(Direction::kForward, Kind::kRecvF, Kind::kSendF);
    if (program_.is_training) add(Direction::kBackward, Kind::kRecvB, Kind::kSendB);
    return needed;
  }

  void CheckMicroBatch(int stage, int micro_batch, uint16_t needed) {
    const uint16_t done = Done(stage, micro_batch);
    uint16_t missing = needed & ~done;
    if (program_.is_training) missing |= MissingBackward(done);
    for (int kind = 0; missing >> kind != 0; ++kind) {
      if (missing >> kind & 1) {
        context_.Miss(program_.stage_ranks[stage],
                      MakeAction(stage, static_cast<Kind>(kind), micro_batch));
      }
    }
  }

  static uint16_t MissingBackward(uint16_t done) {
    if (done & Bit(Kind::kBackward)) return 0;
    if (!(done & Bit(Kind::kInputGrad))) return Bit(Kind::kBackward);
    return Bit(Kind::kWeightGrad) & ~done;
  }

  void CheckEnds(int stage) {
    if (!context_.is_lowered || !program_.is_training) return;
    const auto& tied = context_.options.tied_stages;
    const bool is_tied = std::find(tied.begin(), tied.end(), stage) != tied.end();
    for (Kind kind : kEnds) {
      const bool is_needed = kind != Kind::kReduceTied || is_tied;
      if (is_needed && !(stages_[stage].ends & Bit(kind))) {
        context_.Miss(program_.stage_ranks[stage], MakeAction(stage, kind));
      }
    }
  }

  const CheckContext& context_;
  const Program& program_;
  const Links links_;
  std::vector<uint16_t> done_;  // bits of the kinds that have run, by stage and micro-batch
  std::vector<Stage> stages_;
  // The action that is being checked:
  int rank_ = 0;
  int position_ = 0;
  std::string part_text_;
};

// Checks the map of stages to ranks, on which all other checks rely.
bool CheckMap(const CheckContext& context) {
  const Program& program = context.program;
  if (program.micro_batches < 1) context.Note(-1, "the program has no micro-batches");
  std::vector<bool> has_stage(program.ranks(), false);
  for (int s = 0; s < program.stages(); ++s) {
    const int rank = program.stage_ranks[s];
    if (rank >= 0 && rank < program.ranks()) {
      has_stage[rank] = true;
    } else {
      context.Note(-1, Str("stage ", s, " is on rank ", rank, " but the program has ",
                           Plural(program.ranks(), "row")));
    }
  }
  for (int rank = 0; rank < program.ranks(); ++rank) {
    if (!has_stage[rank]) context.Note(rank, Str("rank ", rank, " has no stage"));
  }
  if (program.stages() == 0) context.Note(-1, "the program has no stages");
  return context.result.ok();
}

}  // namespace

void CheckRows(const CheckContext& context) {
  if (!CheckMap(context)) return;
  RowChecks checks(context);
  for (int rank = 0; rank < context.program.ranks(); ++rank) checks.CheckRow(rank);
  checks.CheckNothingIsMissing();
}

}  // namespace strata::schedule
