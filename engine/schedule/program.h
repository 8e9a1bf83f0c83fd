// Program: what every rank does in one training step, as a plain value. Generators write
// compute-only programs (F, I, W, B, R, overlaps and idle time steps); lowering adds communication,
// reductions and the optimizer's step; the checker proves the program correct; the executor runs
// one row per rank. Torch-free.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/schedule/action.h"
#include "engine/schedule/stage_map.h"

namespace strata::schedule {

/// A program has one row of actions for each rank of the pipe axis. In a compute-only program a
/// cell is a time step of the schedule's drawing and may be idle. In a lowered program only the
/// order within a row has a meaning.
struct Program {
  std::string name;              ///< the generator's name, or the name of a user's program
  std::vector<int> stage_ranks;  ///< the rank of every stage; its size is the number of stages
  int micro_batches = 0;
  bool is_training = true;  ///< false: forwards only
  std::vector<std::vector<Action>> rows;

  int ranks() const { return static_cast<int>(rows.size()); }
  int stages() const { return static_cast<int>(stage_ranks.size()); }
  int last_stage() const { return stages() - 1; }
  /// True if `stage` and `stage` + 1 are on different ranks, so that messages cross between ranks.
  /// False for the last stage.
  bool crosses_after(int stage) const {
    return stage + 1 < stages() && stage_ranks[stage] != stage_ranks[stage + 1];
  }
  /// True if the stage of a simple action (of ActionParts), and its micro-batch if it has one,
  /// exist.
  bool has(const Action& part) const {
    return part.stage >= 0 && part.stage < stages() && part.micro_batch < micro_batches &&
           (part.micro_batch >= 0 || !HasMicroBatch(part.kind));
  }
  /// True if has() is true for all actions, there are stages and micro-batches, and all stages are
  /// on ranks that exist. Then the program can be indexed by stage, rank and micro-batch.
  bool has_places() const;
  bool operator==(const Program&) const = default;
};

/// The stages of one rank, ascending.
std::vector<int> StagesOfRank(const Program& program, int rank);

/// Removes the idle cells of the program.
Program WithoutIdle(Program program);

/// The number of actions in all rows, idle cells included.
int64_t CountActions(const Program& program);

/// True if the program has communication actions, so that AddCommunication() adds none.
bool HasCommunication(const Program& program);

/// True if each stage runs its backwards (B and I, and B and W) in ascending order of
/// micro-batches, and the last stage its forwards and recomputations too, which add the gradients
/// of a head in chunks (layers/head_chunks.h). Then gradients add up bit for bit as on one rank;
/// otherwise sums are rounded in another order.
bool AccumulatesInOrder(const Program& program);

/// Writes the program as CSV: a line per rank, a cell per action, an empty cell for an idle action.
/// torch.distributed.pipelining's _load_csv can read it if it knows all the kinds.
std::string ToCsv(const Program& program);

/// Draws the program: a line per rank, cells in columns, '.' for an idle step. The stages are shown
/// if ranks have several:
///   rank 0 | F0 .  F1 B0
std::string ToGrid(const Program& program);

/// What the caller knows about a program that comes as text. Fields that are left at their defaults
/// are derived from the text.
struct ParseOptions {
  std::string name = "user";
  std::vector<int> stage_ranks = {};  ///< empty: the rank whose row first names the stage
  int ranks = 0;                      ///< 0: the number of lines
  int micro_batches = 0;              ///< 0: the highest number of a micro-batch, plus 1
};

/// Reads a program from CSV: Strata's own, or either of torch's forms (compute_only,
/// compute_comms). Lines that start with '#' are comments. It is a training program if it has any
/// backward action. The result may still be an incorrect program; Check() finds that. Throws
/// ConfigError that names row (rank) and column (both from 0), the text of the cell and what was
/// expected.
Program ParseProgram(std::string_view csv, const ParseOptions& options = {});

/// Does the same for cells: `rows[rank][column]`.
Program ParseProgram(const std::vector<std::vector<std::string>>& rows,
                     const ParseOptions& options = {});

/// Shows one row in messages: the actions around `position`, "..." if some are left out, and the
/// action at `position` in [brackets]. `position` -1 marks no action and shows the beginning.
std::string ShowRow(std::span<const Action> row, int position, int width = 100);

}  // namespace strata::schedule
