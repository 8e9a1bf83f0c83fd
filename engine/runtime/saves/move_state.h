// MoveState: the state of a training from the ranks that had it to those that have it now, without
// a file.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/runtime/saves/training_state.h"

namespace strata {

/// Elements of a box of a tensor of the state; torch-free.
struct StateRange {
  std::string box;  ///< tells the tensor and the box (Slice) in it
  int64_t begin = 0, end = 0;
  bool operator==(const StateRange&) const = default;
};

/// What one rank sends to another; where both are one, what it has already.
struct StateMove {
  int from = 0, to = 0;
  StateRange range;
  bool operator==(const StateMove&) const = default;
};

/// Who sends what. `has` and `wants`: of every rank. A rank takes what it has from itself, the rest
/// from the first of those that are `near` it, and else from the first of all. In the order of the
/// receivers and of what each wants. Aborts where nobody has what is wanted.
std::vector<StateMove> MovesOf(const std::vector<std::vector<StateRange>>& has,
                               const std::vector<std::vector<StateRange>>& wants,
                               const std::function<bool(int, int)>& near);

/// Collective: fills the memory of `now` with what `before` holds, on whatever ranks; the bytes
/// that went from rank to rank. `before` and `now`: all that this rank had, and has (StateOf()), in
/// different memory. `near`: whether two ranks are of one pipeline.
int64_t MoveState(const std::vector<StateTensor>& before, const std::vector<StateTensor>& now,
                  const std::function<bool(int, int)>& near, Transport& transport);

}  // namespace strata
