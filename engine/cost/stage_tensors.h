// StageTensors: numbers the memories of the tensors between the layers of a stage, so that each is
// counted once. The output of a layer is the input of the next one; a layer may pass its input on
// (Flatten, strata.skip); and the value of a connection (layers/connections.h) is the memory that
// the chain had at its skip. Private to the package.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "engine/cost/layer_costs.h"

namespace strata {

/// The memories of the tensors at one place, as their numbers, and kNoMemory behind them.
inline constexpr int kNoMemory = -1;
using Memories = std::array<int, 4>;

class StageTensors {
 public:
  /// Layers `begin` to `end` as one stage. What arrives there are memories of their own, even if
  /// they were one on the stage before. Takes time proportional to the layers and the connections.
  StageTensors(const ModelCosts& costs, int begin, int end);

  /// The number of memories.
  int count() const { return static_cast<int>(bytes_.size()); }
  int64_t bytes(int memory) const { return bytes_[static_cast<size_t>(memory)]; }
  /// The tensors of the chain before layer i; before `end`: what the stage gives.
  const Memories& Before(int i) const { return chain_[static_cast<size_t>(i - begin_)]; }
  /// The values of connections that cross the place before layer i. A value's several tensors are
  /// listed one by one.
  std::span<const int> Crossing(int i) const {
    const auto at = static_cast<size_t>(i - begin_);
    return std::span(crossing_).subspan(first_[at], first_[at + 1] - first_[at]);
  }
  /// Calls `visit` with every memory of the chain and of the values at the place before layer i. A
  /// memory of both comes twice.
  template <class Visit>
  void ForEachAt(int i, const Visit& visit) const {
    for (const int memory : Before(i)) {
      if (memory == kNoMemory) break;
      visit(memory);
    }
    for (const int memory : Crossing(i)) visit(memory);
  }
  /// The bytes of all tensors at the place before layer i, as a message.
  int64_t MessageBytes(int i) const;
  /// The bytes of their memories, each once.
  int64_t HeldBytes(int i) const;
  /// The bytes of the gradients of values that pass layer i by in the backward, beside those of its
  /// own output and input.
  int64_t PassingGradients(int i) const { return passing_[static_cast<size_t>(i - begin_)]; }
  /// If layer i is a strata.join, the gradients of whose inputs are views of its output's: the
  /// index of its strata.skip; else -1.
  int SkipOf(int i) const { return skip_of_[static_cast<size_t>(i - begin_)]; }

 private:
  int New(int64_t bytes);
  Memories Arrived(const ModelCosts& costs);
  void Walk(const ModelCosts& costs);
  Memories OutputsOf(const LayerCost& cost, int64_t output_bytes, const Memories& inputs);
  void AddPassingGradients(const ModelCosts& costs, const ConnectionCost& connection);

  const int begin_, end_;
  std::vector<int64_t> bytes_;
  std::vector<Memories> chain_;  ///< per place
  std::vector<int> crossing_;
  std::vector<size_t> first_;  ///< per place: its first entry in `crossing_`
  std::vector<int64_t> passing_;
  std::vector<int> skip_of_;
  // While Walk() runs:
  struct Open {
    ConnectionCost connection;
    Memories value;
  };
  std::vector<Open> open_;
};

}  // namespace strata
