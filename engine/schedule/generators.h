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
/// name that nobody has (the nearest is named), one that comes later, sizes that are not positive
/// or that the schedule cannot have, more stages than Action::kMaxStages.
Program Generate(std::string_view name, const Sizes& sizes);

/// The names that Generate() takes, in the table's order.
std::vector<std::string> GeneratorNames();

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

}  // namespace strata::schedule
