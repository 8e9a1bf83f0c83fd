// Lowering: from a compute-only program to what the executor runs, in small passes. Training and
// evaluation programs go through the same passes. Every pass takes time linear in the actions.
#pragma once

#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

struct LoweringOptions {
  std::vector<int> tied_stages = {};  ///< stages that hold a tied parameter, ascending
};

/// All passes below: what the executor runs.
Program Lower(const Program& program, const LoweringOptions& options = {});

/// The same, with the program proved before (where it is compute-only, so that errors show the
/// caller's own rows) and after. Throws ConfigError with Check()'s report. Nothing else should run.
Program LowerAndCheck(const Program& program, const LoweringOptions& options = {});

/// Adds SEND_F, RECV_F, SEND_B, RECV_B and drops idle cells. Neighbouring stages on one rank pass
/// tensors directly, without communication. A program that has communication already only loses
/// its idle cells.
///
/// One link per direction (F, B) and ordered pair of ranks, first in first out: both ends name the
/// same messages in the same order. A gap is what lies between two actions of a row. A send stands
/// in the gap behind its action, so that lowering costs no time. A receive stands as late as it
/// can: in the gap before the action that reads it, which takes no buffer ahead of need; but
/// earlier where the link's order demands it, or where all ranks would wait for each other if sends
/// blocked. So the program cannot deadlock even when each send blocks until its receive is reached.
///
/// To the executor a RECV is the place from which a message may be posted, not a place to wait:
/// the action that reads the message waits for it. Posting even earlier is its own business as far
/// as its buffers (StageBuffers()) reach.
///
/// Throws ConfigError with Check()'s report when actions wait for each other in a circle, a message
/// has no other end, or a stage or micro-batch does not exist. Other mistakes stay in the result,
/// for Check() to find.
Program AddCommunication(const Program& program);

/// Adds R of `stages` in front of each of their B and I that has none yet. It needs nothing from
/// other ranks, so that it runs while the gradient is on its way. An evaluation program is not
/// changed.
Program AddRecomputation(Program program, const std::vector<int>& stages);

/// Adds the reductions of a training program: REDUCE_GRAD of a stage in the gap after its last W
/// or B, behind its sends; of tied stages at the end of the row, after REDUCE_TIED of all tied
/// stages of the rank. A reduction that is there already is kept, but for a tied stage's
/// REDUCE_GRAD, which moves behind its REDUCE_TIED. An evaluation program is not changed.
/// REQUIRES: communication has been added where there is any.
Program AddReductions(Program program, const std::vector<int>& tied_stages);

/// Adds STEP of each stage that has none at the end of its row, stages ascending. An evaluation
/// program is not changed.
Program AddSteps(Program program);

}  // namespace strata::schedule
