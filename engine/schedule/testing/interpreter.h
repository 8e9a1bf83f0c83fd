// Interpreter: says by a plain definition whether a program is correct, as a reference for the
// checker. It tries every interleaving of the ranks, so it is for tiny programs in tests only.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "engine/base/text.h"
#include "engine/schedule/program.h"

namespace strata::schedule::testing {

/// Runs a program in every order in which its ranks can take turns. A send blocks until its receive
/// is reached, and a receive until its send. In a program without communication an action waits for
/// what it reads.
class Interpreter {
 public:
  Interpreter(const Program& program, bool is_lowered)
      : program_(program), is_lowered_(is_lowered) {}

  /// True if every order ends, every necessary action is done exactly once and after what it needs,
  /// and every received message is the one that was sent.
  bool Runs() {
    is_right_ = HasEachActionOnce();
    if (is_right_) Explore(std::vector<size_t>(program_.rows.size(), 0), {});
    return is_right_;
  }

 private:
  using Positions = std::vector<size_t>;
  using Done = std::set<std::string>;

  bool HasEachActionOnce() const {
    std::map<std::string, int> found;
    int total = 0, expected = 0;
    for (int r = 0; r < program_.ranks(); ++r) {
      for (const Action& action : program_.rows[r]) {
        for (const Action& part : ActionParts(action)) {
          if (!HasMicroBatch(part.kind)) continue;
          if (!program_.has(part) || program_.stage_ranks[part.stage] != r) return false;
          const int times = ++found[ToText(part)];
          if (part.kind != Kind::kRecompute) {
            ++total;
          } else if (times > 1) {
            return false;
          }
        }
      }
    }
    bool is_right = true;
    const auto once = [&](int s, const char* kind, int m) {
      ++expected;
      is_right &= found[Str(s, kind, m)] == 1;
    };
    for (int s = 0; s < program_.stages(); ++s) {
      for (int m = 0; m < program_.micro_batches; ++m) {
        const bool crosses = is_lowered_ && program_.crosses_after(s);
        once(s, "F", m);
        if (crosses) once(s, "SEND_F", m), once(s + 1, "RECV_F", m);
        if (!program_.is_training) continue;
        if (crosses) once(s + 1, "SEND_B", m), once(s, "RECV_B", m);
        const bool is_split = found[Str(s, "I", m)] > 0;
        once(s, is_split ? "I" : "B", m);
        if (is_split) once(s, "W", m);
      }
    }
    return is_right && total == expected;
  }

  void Explore(const Positions& positions, const Done& done) {
    if (!is_right_ || !seen_.insert(positions).second) return;
    bool is_finished = true, moved = false;
    for (int r = 0; r < program_.ranks() && is_right_; ++r) {
      if (positions[r] == program_.rows[r].size()) continue;
      is_finished = false;
      moved |= TryRank(r, positions, done);
    }
    if (!is_finished && !moved) is_right_ = false;
  }

  const Action& Next(const Positions& positions, int r) const {
    return program_.rows[r][positions[r]];
  }

  bool TryRank(int r, Positions positions, Done done) {
    const Action& action = Next(positions, r);
    if (IsCommunication(action.kind)) {
      return IsSend(action.kind) && TrySend(r, action, positions, done);
    }
    if (IsCompute(action.kind) && !HasNeeds(action, done)) {
      if (is_lowered_) is_right_ = false;  // in a lowered program no rank waits at a compute action
      return false;
    }
    for (const Action& part : ActionParts(action)) done.insert(ToText(part));
    ++positions[r];
    Explore(positions, done);
    return true;
  }

  bool TrySend(int r, const Action& send, Positions positions, Done done) {
    const bool is_forward = send.kind == Kind::kSendF;
    const int reader = send.stage + (is_forward ? 1 : -1);
    const int other = program_.stage_ranks[reader];
    if (positions[other] == program_.rows[other].size()) return false;
    const Action& recv = Next(positions, other);
    const Kind expected = is_forward ? Kind::kRecvF : Kind::kRecvB;
    const int from =
        recv.kind == expected ? program_.stage_ranks[recv.stage + (is_forward ? -1 : 1)] : -1;
    if (from != r) return false;
    const bool was_given = is_forward ? done.count(Str(send.stage, "F", send.micro_batch)) > 0
                                      : WentBack(send.stage, send.micro_batch, done);
    if (recv != MakeAction(reader, expected, send.micro_batch) || !was_given) {
      is_right_ = false;
      return true;
    }
    done.insert({ToText(send), ToText(recv)});
    ++positions[r];
    ++positions[other];
    Explore(positions, done);
    return true;
  }

  static bool WentBack(int s, int m, const Done& done) {
    return done.count(Str(s, "B", m)) + done.count(Str(s, "I", m)) > 0;
  }

  bool HasNeeds(const Action& action, const Done& done) const {
    for (const Action& part : ActionParts(action)) {
      const int s = part.stage, m = part.micro_batch;
      const auto is_done = [&](const std::string& text) { return done.count(text) > 0; };
      if (part.kind == Kind::kForward) {
        if (s == 0) continue;
        const bool by_link = is_lowered_ && program_.crosses_after(s - 1);
        if (!is_done(by_link ? Str(s, "RECV_F", m) : Str(s - 1, "F", m))) return false;
      } else if (part.kind == Kind::kWeightGrad) {
        if (!is_done(Str(s, "I", m))) return false;
      } else {
        if (!is_done(Str(s, "F", m))) return false;
        if (part.kind == Kind::kRecompute) {
          if (WentBack(s, m, done)) return false;
          continue;
        }
        if (s + 1 == program_.stages()) continue;
        const bool by_link = is_lowered_ && program_.crosses_after(s);
        if (by_link ? !is_done(Str(s, "RECV_B", m)) : !WentBack(s + 1, m, done)) return false;
      }
    }
    return true;
  }

  const Program& program_;
  const bool is_lowered_;
  bool is_right_ = true;
  std::set<Positions> seen_;
};

inline bool Runs(const Program& program, bool is_lowered) {
  return Interpreter(program, is_lowered).Runs();
}

}  // namespace strata::schedule::testing
