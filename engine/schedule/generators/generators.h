// Generators: make a compute-only program from the name and the sizes of a schedule. A new schedule
// needs one file, one test and one line in the table of generators.cc.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/schedule/program.h"

namespace strata::schedule {

struct Sizes {
  int ranks = 1;  ///< of the pipe axis
  int stages_per_rank = 1;
  int micro_batches = 1;
};

/// Generates the named schedule as a compute-only program with idle time steps. Throws ConfigError
/// for an unknown name (and tells the nearest one), for sizes that are not positive or that the
/// schedule cannot have, and for more stages than Action::kMaxStages.
Program Generate(std::string_view name, const Sizes& sizes);

/// True if the schedule can have these sizes, which must be positive. Throws ConfigError for an
/// unknown name.
bool Fits(std::string_view name, const Sizes& sizes);

/// Throws what Generate() would throw for the name and the sizes, but generates nothing.
void CheckSizes(std::string_view name, const Sizes& sizes);

/// The rank of every stage in the named schedule. Throws ConfigError for an unknown name.
std::vector<int> StageMap(std::string_view name, int ranks, int stages_per_rank);

/// All names that Generate() knows, in the order of the table.
std::vector<std::string> GeneratorNames();

/// The names that a search tries: all schedules for training except "auto", which is a search
/// itself.
std::vector<std::string> TriedSchedules();

/// The turn of the schedule in a search: of two equally good schedules the one with the lower
/// number wins.
int TurnOf(std::string_view name);

/// A program of forwards only, over any map of stages to ranks. Evaluation runs it on the same
/// ranks as a training program. Each rank runs the highest of its stages that can run, so that
/// micro-batches leave soon. REQUIRES: every rank has a stage, and there is at least one
/// micro-batch.
Program EvaluationProgram(const std::vector<int>& stage_ranks, int micro_batches);

// The generators. Each file draws the schedule for 3 ranks (DualPipeV: 2). P is the number of
// ranks, M that of micro-batches, v that of stages per rank.

/// All forwards, then all backwards (Huang et al., arXiv:1811.06965). The backwards run in
/// ascending order of micro-batches, so that gradients add up as on one rank. One stage per rank.
Program GPipe(const Sizes& sizes);

/// One forward, one backward after a warm-up of P-s forwards on stage s (Narayanan et al.,
/// arXiv:2104.04473, section 2.2.1). Order and idle steps are those of DeepSpeed's TrainSchedule
/// (deepspeed/runtime/pipe/schedule.py). One stage per rank.
Program OneFOneB(const Sizes& sizes);

/// Forwards only, on the loop map: EvaluationProgram(LoopMap(...)). With one stage per rank the
/// order is that of DeepSpeed's InferenceSchedule.
Program Inference(const Sizes& sizes);

/// 1F1B on the loop map with any number v of stages per rank, which divides the bubble by v
/// (Narayanan et al., section 2.2.2; order as in Megatron-LM and torch). The number of
/// micro-batches is free: if P does not divide it, the groups are a little larger than P.
Program Interleaved1F1B(const Sizes& sizes);

/// All micro-batches go through one stage after the other, breadth first (Lamy-Poirier,
/// arXiv:2211.05953), so the gradients of the stages are complete early, one stage after the other.
/// Loop map. Backwards run in ascending order (in the paper and torch: descending), which takes as
/// long.
Program LoopedBfs(const Sizes& sizes);

/// Zero bubble (Qi et al., arXiv:2401.10241): backwards are split into I and W. H1 has the memory
/// of 1F1B and the bubble (P-1)(F+I-W), a third of 1F1B's if F = I = W. H2 has twice the memory
/// and, if F = I = W, no bubble: no rank waits between its first action and its last. One stage per
/// rank.
Program ZbH1(const Sizes& sizes);
Program ZbH2(const Sizes& sizes);

/// Interleaved 1F1B with backwards split into I and W; order as in torch. Loop map.
Program InterleavedZb(const Sizes& sizes);

/// Zero bubble on a V with two stages per rank (Qi et al., arXiv:2405.15362; order as in torch).
/// With F = I = W and at least 2P-1 micro-batches, no rank waits between its first action and its
/// last. The memory is that of 1F1B.
Program Zbv(const Sizes& sizes);

/// Zero bubble on a V with about a half (V-Half) and a third (V-Min) of ZBV's memory: P+2 and
/// 2(P+4)/3 activations of a stage instead of 2P. The bubble is about P/2M and 2P/3M.
Program VHalf(const Sizes& sizes);
Program VMin(const Sizes& sizes);

/// DualPipe cut in half (DeepSeek-V3, arXiv:2412.19437; order as in torch and the reference): a V
/// with two stages per rank, on which forwards and backwards of a rank overlap. It needs at least
/// 2P micro-batches.
Program DualPipeV(const Sizes& sizes);

/// The best for equal costs and any memory: SearchProgram() (program_search.h).
Program Auto(const Sizes& sizes);

}  // namespace strata::schedule
