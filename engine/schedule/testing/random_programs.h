// Random correct programs for tests: with any map of stages to ranks and any order that the network
// allows, with and without split backwards, recomputation and overlaps.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "engine/schedule/program.h"
#include "engine/schedule/simulator.h"

namespace strata::schedule::testing {

/// The largest sizes of a random program.
struct Limits {
  int ranks = 4;
  int stages = 7;
  int micro_batches = 5;
};

/// Builds a program move by move: in each move a random action that can run is appended to the row
/// of its rank.
class RandomProgram {
 public:
  /// To be called inside rc::check.
  static Program Any(const Limits& limits = {}) { return RandomProgram(limits).Play(); }

 private:
  explicit RandomProgram(const Limits& limits) {
    const int ranks = *rc::gen::inRange(1, limits.ranks + 1);
    const int stages = *rc::gen::inRange(ranks, std::max(ranks, limits.stages) + 1);
    program_.name = "random";
    program_.micro_batches = *rc::gen::inRange(1, limits.micro_batches + 1);
    program_.is_training = *rc::gen::inRange(0, 4) > 0;
    program_.rows.resize(ranks);
    for (int s = 0; s < stages; ++s) {
      // The first `ranks` stages are on different ranks, so that each rank has one.
      program_.stage_ranks.push_back(s < ranks ? s : *rc::gen::inRange(0, ranks));
    }
    const int rotation = *rc::gen::inRange(0, stages);
    std::rotate(program_.stage_ranks.begin(), program_.stage_ranks.begin() + rotation,
                program_.stage_ranks.end());
    splits_ = *rc::gen::arbitrary<bool>();
    recomputes_ = *rc::gen::inRange(0, 3) == 0;
    overlaps_ = *rc::gen::arbitrary<bool>();
    // From 0, as many forwards as possible first, to 4, backwards as soon as possible.
    eagerness_ = *rc::gen::inRange(0, 5);
  }

  Program Play() {
    while (true) {
      const std::vector<Action> moves = Moves();
      if (moves.empty()) return program_;
      const Action move = Choose(moves);
      auto& row = program_.rows[RankOf(move)];
      if (*rc::gen::inRange(0, 8) == 0) row.push_back(Action());
      const Action partner = overlaps_ ? PartnerOf(move, moves) : Action();
      if (partner.kind == Kind::kIdle) {
        Do(move);
        row.push_back(move);
      } else {
        Do(move);
        Do(partner);
        row.push_back(MakeOverlap(move, partner));
      }
    }
  }

  int RankOf(const Action& action) const { return program_.stage_ranks[action.stage]; }

  bool Has(int stage, Kind kind, int micro_batch) const {
    return done_.count(ToText(MakeAction(stage, kind, micro_batch))) > 0;
  }
  bool WentBack(int s, int m) const {
    return Has(s, Kind::kBackward, m) || Has(s, Kind::kInputGrad, m);
  }

  void Do(const Action& action) { done_.insert(ToText(action)); }

  // All actions that can run next.
  std::vector<Action> Moves() const {
    std::vector<Action> moves;
    for (int s = 0; s < program_.stages(); ++s) {
      for (int m = 0; m < program_.micro_batches; ++m) AddMoves(s, m, moves);
    }
    return moves;
  }

  void AddMoves(int s, int m, std::vector<Action>& moves) const {
    if (!Has(s, Kind::kForward, m)) {
      const bool has_input = s == 0 || Has(s - 1, Kind::kForward, m);
      if (has_input) moves.push_back(MakeAction(s, Kind::kForward, m));
      return;
    }
    if (!program_.is_training) return;
    if (WentBack(s, m)) {
      const bool is_half = Has(s, Kind::kInputGrad, m) && !Has(s, Kind::kWeightGrad, m);
      if (is_half) moves.push_back(MakeAction(s, Kind::kWeightGrad, m));
      return;
    }
    if (recomputes_ && s % 2 == 0 && !Has(s, Kind::kRecompute, m)) {
      moves.push_back(MakeAction(s, Kind::kRecompute, m));
      return;
    }
    const bool has_gradient = s == program_.last_stage() || WentBack(s + 1, m);
    if (!has_gradient) return;
    const bool is_split = splits_ && (s + m) % 2 == 0;
    moves.push_back(MakeAction(s, is_split ? Kind::kInputGrad : Kind::kBackward, m));
  }

  Action Choose(const std::vector<Action>& moves) const {
    std::vector<Action> backwards;
    for (const Action& move : moves) {
      if (move.kind != Kind::kForward) backwards.push_back(move);
    }
    const bool goes_back = !backwards.empty() && *rc::gen::inRange(0, 4) < eagerness_;
    return *rc::gen::elementOf(goes_back ? backwards : moves);
  }

  // A backward that can run beside the forward `move`; an idle action if there is none.
  Action PartnerOf(const Action& move, const std::vector<Action>& moves) const {
    if (move.kind != Kind::kForward) return {};
    for (const Action& other : moves) {
      if (GivesInputGrad(other.kind) && RankOf(other) == RankOf(move)) return other;
    }
    return {};
  }

  Program program_;
  bool splits_ = false;
  bool recomputes_ = false;
  bool overlaps_ = false;
  int eagerness_ = 0;
  std::set<std::string> done_;
};

/// Random costs of `count` stages in multiples of 1/8, so that sums are exact.
inline std::vector<double> AnyCostList(int count, int low = 1, int high = 30) {
  std::vector<double> costs;
  for (int i = 0; i < count; ++i) costs.push_back(*rc::gen::inRange(low, high) / 8.0);
  return costs;
}

/// Random costs for all stages and kinds, and a latency.
inline Costs AnyCosts(int stages) {
  return {.forward = AnyCostList(stages),
          .input_grad = AnyCostList(stages),
          .weight_grad = AnyCostList(stages),
          .recompute = AnyCostList(stages),
          .comm = *rc::gen::inRange(0, 20) / 8.0};
}

/// A random subset of the stages.
inline std::vector<int> AnyStages(int stages) {
  std::vector<int> some;
  for (int s = 0; s < stages; ++s) {
    if (*rc::gen::arbitrary<bool>()) some.push_back(s);
  }
  return some;
}

}  // namespace strata::schedule::testing
