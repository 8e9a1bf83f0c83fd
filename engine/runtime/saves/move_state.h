// MoveState(): sends the state of a training from the ranks that had it to the ranks that need it
// after layers have moved, without a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/runtime/saves/training_state.h"

namespace strata {

/// A range of the elements of a box of a tensor of the state; torch-free.
struct StateRange {
  std::string box;  ///< names the tensor and the box (Slice) of it
  int64_t begin = 0, end = 0;
  bool operator==(const StateRange&) const = default;
};

/// A range that one rank sends to another; if both are the same rank, it copies what it has.
struct StateMove {
  int from = 0, to = 0;
  StateRange range;
  bool operator==(const StateMove&) const = default;
};

/// Computes who sends what. `has` and `wants`: the ranges of every rank. A rank copies what it has
/// itself; the rest comes from the first owner that is `near` it, or else from the first owner. The
/// moves are ordered by receiver, and for each receiver as in `wants`. Aborts if no rank has what
/// is wanted.
std::vector<StateMove> MovesOf(const std::vector<std::vector<StateRange>>& has,
                               const std::vector<std::vector<StateRange>>& wants,
                               const std::function<bool(int, int)>& near);

/// Collective: fills the memory of `now` with the values that `before` holds on any rank. Returns
/// the number of bytes that were sent between ranks. `before` and `now`: all state that this rank
/// had and has now (StateOf()), in different memory. `near`: true if two ranks belong to the same
/// pipeline.
int64_t MoveState(const std::vector<StateTensor>& before, const std::vector<StateTensor>& now,
                  const std::function<bool(int, int)>& near, Transport& transport);

}  // namespace strata
