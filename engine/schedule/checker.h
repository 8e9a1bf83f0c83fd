// Checker: proves that a program is right before anything starts. Training and evaluation,
// compute-only and lowered programs, ours and users'.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

struct CheckOptions {
  /// Demands the lowered form, as the executor needs it. Otherwise a program with communication
  /// counts as lowered and one without as compute-only, which is less to prove.
  bool lowered = false;
  /// Slots per stage that the executor will have; empty: StageBuffers(program), as the executor
  /// has by default.
  std::vector<int> stage_buffers = {};
  /// Stages that hold a tied parameter: a lowered training program must have their REDUCE_TIED.
  std::vector<int> tied_stages = {};
};

/// One thing that is wrong. `text` is a whole explanation with the row shown.
struct Problem {
  int rank = -1;            ///< -1: no row in particular
  int position = -1;        ///< in the row; -1: none, or the action is missing from the row
  std::string action = {};  ///< "" : none in particular
  std::string text = {};
};

/// Problems in the order found, at most kMaxProblems; later proofs rest on earlier ones and are
/// left out when those fail.
struct CheckResult {
  static constexpr int kMaxProblems = 20;
  std::vector<Problem> problems;
  std::vector<int> peak_activations;  ///< per rank, see PeakActivations(); empty unless ok

  bool ok() const { return problems.empty(); }
  /// All explanations, one after another; "" when ok.
  std::string Report() const;
};

/// Proves, in this order:
/// 1. Places. Every rank has a stage; an action is in the row of its stage's rank; stage and
///    micro-batch exist; an evaluation program has nothing backward.
/// 2. Completeness. Each stage runs F once for each micro-batch and, in training, either B once or
///    I and W once; R at most once.
/// 3. Order in a row. I, B, R after F; W after I; R before I or B; stages of one rank that hand
///    tensors to each other in the order of the network. Lowered: a RECV before the action that
///    needs it, a SEND after the action that gives it, each exactly once where stages are on
///    different ranks and never where they share one. So each micro-batch crosses the stages once,
///    forward ascending and backward descending.
/// 4. Links. On each link (direction, rank, rank) the k-th send is the k-th receive.
/// 5. Progress. No rank waits for ever, even when every send blocks until its receive is reached
///    and every receive until its send; in a compute-only program, when an action waits for the
///    actions that give its inputs. REDUCE_TIED waits for all stages that have one; several in
///    sequence in a row arrive together.
/// 6. Buffers. No slot is filled while it is still needed.
/// 7. Ends. Lowered training: per stage one REDUCE_GRAD and one STEP, for tied stages one
///    REDUCE_TIED, all after its last W or B, in the order REDUCE_TIED, REDUCE_GRAD, STEP.
/// A compute-only program may have reductions and steps, and then in this order too. Idle cells,
/// UNSHARD and RESHARD mean nothing. Linear in the actions, where few
/// micro-batches are alive at a time.
CheckResult Check(const Program& program, const CheckOptions& options = {});

/// Throws ConfigError with the report when Check() finds a problem.
void CheckOrThrow(const Program& program, const CheckOptions& options = {});

}  // namespace strata::schedule
