// Checker: proves that a program is correct before any rank starts. It checks programs for training
// and evaluation, compute-only and lowered, generated and written by users.
#pragma once

#include <string>
#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

struct CheckOptions {
  /// True: the program must be in the lowered form, as the executor needs it. False: a program with
  /// communication is checked as lowered; one without is checked as compute-only, for which there
  /// is less to prove.
  bool lowered = false;
  /// The number of buffer slots that the executor will have for each stage. Empty:
  /// StageBuffers(program), which is the executor's default.
  std::vector<int> stage_buffers = {};
  /// The stages that hold a tied parameter. In a lowered training program each must have a
  /// REDUCE_TIED.
  std::vector<int> tied_stages = {};
};

/// One fault of a program. `text` is a whole explanation that shows the row.
struct Problem {
  int rank = -1;  ///< -1: the fault is of no particular row
  int position =
      -1;  ///< position in the row; -1: no particular one, or the action is missing from the row
  std::string action = {};  ///< "": no particular action
  std::string text = {};
};

/// The problems in the order in which they were found, at most kMaxProblems. A proof relies on the
/// earlier ones and is skipped if they failed.
struct CheckResult {
  static constexpr int kMaxProblems = 20;
  std::vector<Problem> problems;
  std::vector<int>
      peak_activations;  ///< per rank, see PeakActivations(); empty if there are problems

  bool ok() const { return problems.empty(); }
  /// The texts of all problems, one after another; "" if the program is correct.
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
/// A compute-only program may have reductions and steps, which must then be in this order too. Idle
/// cells, UNSHARD and RESHARD are ignored. The time is linear in the number of actions if few
/// micro-batches are alive at a time.
CheckResult Check(const Program& program, const CheckOptions& options = {});

/// Throws ConfigError with the report if Check() finds a problem.
void CheckOrThrow(const Program& program, const CheckOptions& options = {});

}  // namespace strata::schedule
