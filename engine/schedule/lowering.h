// Lowering: turns a compute-only program into the program that the executor runs, in small passes.
// Programs for training and evaluation go through the same passes. Every pass takes time linear in
// the number of actions.
#pragma once

#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

struct LoweringOptions {
  std::vector<int> tied_stages = {};  ///< stages that hold a tied parameter, ascending
};

/// Runs all passes below: AddCommunication(), AddReductions(), AddSteps().
Program Lower(const Program& program, const LoweringOptions& options = {});

/// Does what Lower() does and checks the program before (if it is compute-only, so that errors show
/// the caller's own rows) and after. Throws ConfigError with Check()'s report. The executor should
/// run only programs from this function.
Program LowerAndCheck(const Program& program, const LoweringOptions& options = {});

/// Adds SEND_F, RECV_F, SEND_B and RECV_B, and removes idle cells. Neighbouring stages on one rank
/// pass tensors directly, without communication. A program that already has communication only
/// loses its idle cells.
///
/// There is one link for each direction (F, B) and ordered pair of ranks, first in, first out: both
/// ends have the same messages in the same order. The place between two actions of a row is called
/// a gap. A send stands in the gap after its action, so that lowering costs no time. A receive
/// stands as late as it can: in the gap before the action that reads it, so that it takes no buffer
/// earlier than needed. It stands earlier if the order of the link demands it, or if all ranks
/// would otherwise wait for each other when sends block. So the program cannot deadlock, even if
/// each send blocks until its receive is reached.
///
/// For the executor a RECV is the point from which a message may be posted; it does not wait there.
/// The action that reads the message waits for it. The executor may post even earlier as far as its
/// buffers (StageBuffers()) allow.
///
/// Throws ConfigError with Check()'s report if actions wait for each other in a cycle, a message
/// has no other end, or a stage or micro-batch does not exist. Other mistakes stay in the result,
/// where Check() finds them.
Program AddCommunication(const Program& program);

/// Adds an R of each stage in `stages` before each of its B and I that has none yet. The R needs
/// nothing from other ranks, so it runs while the gradient is on its way. An evaluation program is
/// not changed.
Program AddRecomputation(Program program, const std::vector<int>& stages);

/// Adds the reductions of a training program. REDUCE_GRAD of an untied stage goes into the gap
/// after its last W or B, after its sends. REDUCE_GRAD of tied stages goes to the end of the row,
/// after REDUCE_TIED of all tied stages of the rank. Reductions that the program already has are
/// kept, except that a tied stage's REDUCE_GRAD moves to the end if REDUCE_TIED has to be added. An
/// evaluation program is not changed. REQUIRES: communication has been added if the program needs
/// it.
Program AddReductions(Program program, const std::vector<int>& tied_stages);

/// Adds a STEP, at the end of the row, for each stage that has none, in ascending order of stages.
/// An evaluation program is not changed.
Program AddSteps(Program program);

}  // namespace strata::schedule
