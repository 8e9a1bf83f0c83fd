// Program: what every rank does in one step, as a plain value. Generators write compute-only
// programs (F, I, W, B, R, overlaps and idle time steps); lowering adds communication, reductions
// and the step; the checker proves; the executor runs one row per rank. Torch-free.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/schedule/action.h"
#include "engine/schedule/stage_map.h"

namespace strata::schedule {

/// One row of actions per rank of the pipe axis. In a compute-only program a cell is a time step
/// of the schedule's drawing and may be idle; in a lowered one the order alone means something.
struct Program {
  std::string name;              ///< the generator's, or what a user's program is called
  std::vector<int> stage_ranks;  ///< the rank of every stage; its size is the number of stages
  int micro_batches = 0;
  bool is_training = true;  ///< false: forwards only
  std::vector<std::vector<Action>> rows;

  int ranks() const { return static_cast<int>(rows.size()); }
  int stages() const { return static_cast<int>(stage_ranks.size()); }
  int last_stage() const { return stages() - 1; }
  /// Whether the neighbours `stage` and `stage` + 1 are on different ranks, so that a message
  /// crosses. False for the last stage.
  bool crosses_after(int stage) const {
    return stage + 1 < stages() && stage_ranks[stage] != stage_ranks[stage + 1];
  }
  /// Whether the stage of a simple action (of ActionParts) and, where it has one, its micro-batch
  /// exist.
  bool has(const Action& part) const {
    return part.stage >= 0 && part.stage < stages() && part.micro_batch < micro_batches &&
           (part.micro_batch >= 0 || !HasMicroBatch(part.kind));
  }
  /// Whether that holds for all actions, there are stages and micro-batches, and all stages are on
  /// ranks that exist: enough to index by stage, rank and micro-batch.
  bool has_places() const;
  bool operator==(const Program&) const = default;
};

/// The stages of one rank, ascending.
std::vector<int> StagesOfRank(const Program& program, int rank);

/// The program without its idle cells.
Program WithoutIdle(Program program);

/// Actions of all rows.
int64_t CountActions(const Program& program);

/// Whether the program has communication actions, so that AddCommunication() leaves it alone.
bool HasCommunication(const Program& program);

/// Whether each stage runs its backwards (B, I and W each) in ascending order of micro-batches, so
/// that its gradients add up bit for bit as on one rank. Otherwise sums are rounded in another
/// order.
bool AccumulatesInOrder(const Program& program);

/// CSV: a line per rank, a cell per action, an empty cell for an idle one. What
/// torch.distributed.pipelining's _load_csv reads, as long as its kinds suffice.
std::string ToCsv(const Program& program);

/// The program as a drawing: a line per rank, cells in columns, '.' for an idle step. Stages are
/// named where ranks have several:
///   rank 0 | F0 .  F1 B0
std::string ToGrid(const Program& program);

/// What the caller knows about a program that comes as text. What is left out is read off the
/// text.
struct ParseOptions {
  std::string name = "user";
  std::vector<int> stage_ranks = {};  ///< empty: the rank whose row first names the stage
  int ranks = 0;                      ///< 0: the number of lines
  int micro_batches = 0;              ///< 0: one more than the highest micro-batch
};

/// Reads a program from CSV: ours, or either of torch's forms (compute_only, compute_comms). Lines
/// that start with '#' are comments. It is a training program when anything goes backward. The
/// result may still be wrong as a program: Check() tells. Throws ConfigError naming row (rank) and
/// column (both from 0), the cell's text and what was expected.
Program ParseProgram(std::string_view csv, const ParseOptions& options = {});

/// The same from cells: `rows[rank][column]`.
Program ParseProgram(const std::vector<std::vector<std::string>>& rows,
                     const ParseOptions& options = {});

/// One row for people: actions around `position`, "..." where more are left out, and the action at
/// `position` in [brackets]. `position` -1 marks none and shows the beginning.
std::string ShowRow(std::span<const Action> row, int position, int width = 100);

}  // namespace strata::schedule
