// Lifetimes: how long a rank keeps what its actions read and write, derived from the order of its
// row alone. It gives the number of buffers that a program needs and the largest number of live
// activations.
#pragma once

#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

/// The buffers of a stage for one micro-batch. Each kind has slots of its own. The comments say
/// when a slot is filled and until when it is needed.
enum class Buffer {
  kInput,       ///< from RECV_F (else F) until W or B; in evaluation until F
  kOutput,      ///< from F until SEND_F, or until F of the next stage on the same rank
  kOutputGrad,  ///< from RECV_B until I or B
  kInputGrad,  ///< from I or B until SEND_B, or until I or B of the previous stage on the same rank
};
inline constexpr int kBufferKinds = 4;

/// The number of slots per stage. Micro-batch m lives in slot m mod n of each kind of buffer. n is
/// the least number, at least 2 as in DeepSpeed, for which the micro-batches alive at the same time
/// span at most n neighbouring ones, so that nothing is overwritten. That is max(2, min(P-s, M))
/// for 1f1b, max(2, M) for gpipe, 2 for inference. If the lowered program and the compute-only one
/// differ, the lowered one is right. Actions of stages or micro-batches that do not exist are
/// ignored in all functions of this header.
std::vector<int> StageBuffers(const Program& program);

/// The sum of StageBuffers() over the stages of each rank: DeepSpeed's num_pipe_buffers.
std::vector<int> Buffers(const Program& program);

/// The largest number of (stage, micro-batch) pairs per rank whose activations are alive at the
/// same time: from F (or from R, if the program recomputes the pair) until W or B; in evaluation
/// during F.
std::vector<int> PeakActivations(const Program& program);

/// The action of a row that starts to fill a slot which is still in use.
struct Overwrite {
  int rank = 0;
  int position = 0;  ///< of the action that writes
  Buffer buffer = Buffer::kInput;
  int stage = 0;
  int slot = 0;
  int old_micro_batch = 0;  ///< the micro-batch that still needs the slot
  int new_micro_batch = 0;
};

/// The first overwrite of each row, if any, with `stage_buffers[s]` slots on stage s.
std::vector<Overwrite> FindOverwrites(const Program& program,
                                      const std::vector<int>& stage_buffers);

}  // namespace strata::schedule
