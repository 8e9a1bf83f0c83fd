// Oracles for tests: slow and plain computations of results that the package computes fast.
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/schedule/lifetimes.h"
#include "engine/schedule/program.h"

namespace strata::schedule::testing {

/// The largest number of pairs of stage and micro-batch per rank whose activations are kept at the
/// same time.
inline std::vector<int> PeaksByDefinition(const Program& program) {
  using Pair = std::pair<int, int>;
  std::set<Pair> recomputed;
  for (const auto& row : program.rows) {
    for (const Action& action : row) {
      if (action.kind == Kind::kRecompute) recomputed.insert({action.stage, action.micro_batch});
    }
  }
  std::vector<int> peaks;
  for (const auto& row : program.rows) {
    std::set<Pair> kept;
    size_t peak = 0;
    for (const Action& action : row) {
      for (const Action& part : ActionParts(action)) {
        const Pair pair(part.stage, part.micro_batch);
        const bool is_forward = part.kind == Kind::kForward;
        if (is_forward || part.kind == Kind::kRecompute) kept.insert(pair);
        peak = std::max(peak, kept.size());
        const bool is_dropped = is_forward && (!program.is_training || recomputed.count(pair) > 0);
        if (is_dropped || GivesWeightGrad(part.kind)) kept.erase(pair);
      }
    }
    peaks.push_back(static_cast<int>(peak));
  }
  return peaks;
}

/// The places in a row from which and until which each micro-batch fills each buffer of each stage,
/// by the definition of Buffer in lifetimes.h: (stage, buffer) -> micro-batch -> (first, last).
class BufferTimes {
 public:
  using Times = std::map<std::pair<int, Buffer>, std::map<int, std::pair<int, int>>>;

  static Times Of(const Program& program) { return BufferTimes(program).times_; }

 private:
  explicit BufferTimes(const Program& program) : program_(program) {
    for (const auto& row : program.rows) {
      int now = 0;
      for (const Action& action : row) {
        // The parts of an overlap count as one after the other.
        for (const Action& part : ActionParts(action)) places_[ToText(part)] = now++;
      }
    }
    for (int s = 0; s < program.stages(); ++s) {
      for (int m = 0; m < program.micro_batches; ++m) AddTimes(s, m);
    }
  }

  // The place of the first of these kinds that the program has; -1 if it has none.
  int PlaceOf(int stage, const std::vector<std::string>& kinds, int micro_batch) const {
    for (const std::string& kind : kinds) {
      const auto place = places_.find(std::to_string(stage) + kind + std::to_string(micro_batch));
      if (place != places_.end()) return place->second;
    }
    return -1;
  }

  bool IsLocal(int stage) const {
    return stage >= 0 && stage + 1 < program_.stages() && !program_.crosses_after(stage);
  }

  void Add(int s, Buffer buffer, int m, int first, int last) {
    if (first >= 0 && last >= 0) times_[{s, buffer}][m] = {first, last};
  }

  void AddTimes(int s, int m) {
    const std::vector<std::string> back = {"B", "I"};
    const bool is_training = program_.is_training;
    Add(s, Buffer::kInput, m, PlaceOf(s, {"RECV_F", "F"}, m),
        is_training ? PlaceOf(s, {"W", "B"}, m) : PlaceOf(s, {"F"}, m));
    Add(s, Buffer::kOutput, m, PlaceOf(s, {"F"}, m),
        IsLocal(s) ? PlaceOf(s + 1, {"F"}, m) : PlaceOf(s, {"SEND_F"}, m));
    Add(s, Buffer::kOutputGrad, m, PlaceOf(s, {"RECV_B"}, m), PlaceOf(s, back, m));
    Add(s, Buffer::kInputGrad, m, PlaceOf(s, back, m),
        IsLocal(s - 1) ? PlaceOf(s - 1, back, m) : PlaceOf(s, {"SEND_B"}, m));
  }

  const Program& program_;
  std::map<std::string, int> places_;
  Times times_;
};

/// For each stage the least n >= 2 for which micro-batches that fill a buffer at the same time are
/// less than n apart.
inline std::vector<int> BuffersByDefinition(const Program& program) {
  std::vector<int> buffers(program.stages(), 2);
  for (const auto& [key, by_micro_batch] : BufferTimes::Of(program)) {
    int& n = buffers[key.first];
    for (const auto& [a, time_a] : by_micro_batch) {
      for (const auto& [b, time_b] : by_micro_batch) {
        const bool overlap = time_a.first < time_b.second && time_b.first < time_a.second;
        if (overlap) n = std::max(n, std::abs(a - b) + 1);
      }
    }
  }
  return buffers;
}

}  // namespace strata::schedule::testing
