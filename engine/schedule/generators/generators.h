// Generators: from a schedule's name and sizes to a compute-only program. A new schedule costs one
// file, one test and one line in the table of generators.cc.
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

/// The named schedule as a compute-only program with its idle time steps. Throws ConfigError: a
/// name that nobody has (the nearest is named), sizes that are not positive or that the schedule
/// cannot have, more stages than Action::kMaxStages.
Program Generate(std::string_view name, const Sizes& sizes);

/// Whether the schedule can have these sizes, which are positive. Throws ConfigError: a name that
/// nobody has.
bool Fits(std::string_view name, const Sizes& sizes);

/// Throws what Generate() would throw for the name and the sizes, without its work.
void CheckSizes(std::string_view name, const Sizes& sizes);

/// The rank of every stage of such a program. Throws ConfigError: a name that nobody has.
std::vector<int> StageMap(std::string_view name, int ranks, int stages_per_rank);

/// The names that Generate() takes, in the table's order.
std::vector<std::string> GeneratorNames();

/// Of these the ones that searches try: all that train, but "auto", which is a search itself.
std::vector<std::string> TriedSchedules();

/// The place of the schedule in a search: of two equally good ones the lower turn wins.
int TurnOf(std::string_view name);

/// Forwards only, over any map of stages to ranks: what evaluation runs beside a training program
/// on the same ranks. Each rank takes the highest of its stages that can run, so that micro-batches
/// leave soon. REQUIRES: every rank has a stage, there is at least one micro-batch.
Program EvaluationProgram(const std::vector<int>& stage_ranks, int micro_batches);

// The generators. Each draws its case of 3 ranks in its own file.

/// All forwards, then all backwards (Huang et al., arXiv:1811.06965), the backwards in ascending
/// order of micro-batches so that gradients add up as on one rank. One stage per rank.
Program GPipe(const Sizes& sizes);

/// One forward, one backward after a warm-up of P-s forwards on stage s (Narayanan et al.,
/// arXiv:2104.04473, section 2.2.1). Order and idle steps are those of DeepSpeed's TrainSchedule
/// (deepspeed/runtime/pipe/schedule.py). One stage per rank.
Program OneFOneB(const Sizes& sizes);

/// Forwards only, loop map: EvaluationProgram(LoopMap(...)). With one stage per rank the order is
/// that of DeepSpeed's InferenceSchedule.
Program Inference(const Sizes& sizes);

/// 1F1B over the loop map with any number of stages per rank, which divides the bubble by it
/// (Narayanan et al., section 2.2.2; order as in Megatron-LM and torch). Any number of
/// micro-batches: where ranks do not divide them, groups are a little larger.
Program Interleaved1F1B(const Sizes& sizes);

/// All micro-batches through one stage after the other, breadth first (Lamy-Poirier,
/// arXiv:2211.05953): gradients of a stage are ready early, one after the other. Loop map.
/// Backwards in ascending order (the paper and torch: descending), which takes as long.
Program LoopedBfs(const Sizes& sizes);

/// Zero bubble (Qi et al., arXiv:2401.10241): backwards split in I and W. H1 has the memory of 1F1B
/// and a third of its bubble, (P-1)(F+I-W); H2 twice the memory, and where F = I = W no bubble:
/// no rank waits between its first action and its last. One stage per rank.
Program ZbH1(const Sizes& sizes);
Program ZbH2(const Sizes& sizes);

/// Interleaved 1F1B with split backwards; order as in torch. Loop map.
Program InterleavedZb(const Sizes& sizes);

/// Zero bubble on a V with two stages per rank (Qi et al., arXiv:2405.15362; order as in torch):
/// for F = I = W and at least 2P-1 micro-batches no rank waits between its first action and its
/// last, with the memory of 1F1B.
Program Zbv(const Sizes& sizes);

/// The same with about half and a third of ZBV's memory (P+2 and 2(P+4)/3 activations of a stage
/// instead of 2P), for a bubble of about P/2M and 2P/3M.
Program VHalf(const Sizes& sizes);
Program VMin(const Sizes& sizes);

/// DualPipe cut in half (DeepSeek-V3, arXiv:2412.19437; order as in torch and the reference): a V
/// with two stages per rank, on which forwards and backwards of a rank overlap. At least 2P
/// micro-batches.
Program DualPipeV(const Sizes& sizes);

/// The best for equal costs and any memory: SearchProgram() (program_search.h).
Program Auto(const Sizes& sizes);

}  // namespace strata::schedule
