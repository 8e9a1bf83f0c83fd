// Lifetimes: how long a rank keeps what its actions read and write, from the order of its row
// alone. Says how many buffers a program needs and how many activations are alive at most.
#pragma once

#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

/// What a stage keeps for one micro-batch. Each has its own slots.
enum class Buffer {
  kInput,       ///< RECV_F (else F) until nothing reads it: W or B; in evaluation F
  kOutput,      ///< F until SEND_F, or until F of the next stage on the same rank
  kOutputGrad,  ///< RECV_B until I or B
  kInputGrad,   ///< I or B until SEND_B, or until I or B of the stage before on the same rank
};
inline constexpr int kBufferKinds = 4;

/// Slots per stage: micro-batch m lives in slot m mod n of each kind of buffer, and n is the least
/// number, at least 2 as in DeepSpeed, for which what is alive at once spans at most n neighbouring
/// micro-batches, so that nothing is overwritten. That is max(2, min(P-s, M)) for 1f1b, max(2, M)
/// for gpipe, 2 for inference. The lowered program is what counts where it differs from the
/// compute-only one. Actions of stages or micro-batches that do not exist are ignored here and
/// below.
std::vector<int> StageBuffers(const Program& program);

/// DeepSpeed's num_pipe_buffers per rank: the sum of StageBuffers() over the rank's stages.
std::vector<int> Buffers(const Program& program);

/// The largest number of (stage, micro-batch) pairs per rank whose activations are alive at once:
/// from F, or from R where the program recomputes the pair, until W or B; in evaluation during F.
std::vector<int> PeakActivations(const Program& program);

/// Where a row starts to fill a slot that is still in use.
struct Overwrite {
  int rank = 0;
  int position = 0;  ///< of the action that writes
  Buffer buffer = Buffer::kInput;
  int stage = 0;
  int slot = 0;
  int old_micro_batch = 0;  ///< still needed
  int new_micro_batch = 0;
};

/// All overwrites with `stage_buffers[s]` slots on stage s, at most one per row.
std::vector<Overwrite> FindOverwrites(const Program& program,
                                      const std::vector<int>& stage_buffers);

}  // namespace strata::schedule
