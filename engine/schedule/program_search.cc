#include "engine/schedule/program_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/generators/idle_grid.h"
#include "engine/schedule/generators/list_schedule.h"

namespace strata::schedule {
namespace {

// Limits on the time of a search, in simulated actions: of list schedules, and of local search.
constexpr int64_t kMaxListed = 4'000'000;
constexpr int64_t kMaxImproved = 300'000;

template <class T>
T Largest(const std::vector<T>& values) {
  return values.empty() ? 0 : *std::max_element(values.begin(), values.end());
}

/// The order of programs, smaller is better: the price, then the longest wait of a rank, then the
/// largest number of live activations.
using Score = std::tuple<double, double, int>;

struct Measured {
  Simulation simulation;
  Score score;
};

/// Searches in three steps, each of which simulates every candidate (Simulate()) and keeps the best
/// one by its score: all named schedules that fit; list schedules for several rules, limits of
/// memory and maps (TryLists()); and local search from the best of these (Improve()). The last two
/// stop when the simulated actions exceed their budget, which is counted instead of time so that
/// the answer is the same on every machine.
class ProgramSearch {
 public:
  ProgramSearch(const Sizes& sizes, const ProgramSearchOptions& options)
      : sizes_(sizes),
        options_(options),
        memory_(options.memory > 0 ? options.memory : std::numeric_limits<int>::max()) {}

  FoundProgram Run() {
    TryNamed();
    if (memory_ >= sizes_.stages_per_rank)
      TryLists();
    else
      least_memory_ = sizes_.stages_per_rank;
    if (!best_ && least_bytes_ < std::numeric_limits<int64_t>::max()) {
      throw ConfigError(
          Str("no program for ", Plural(sizes_.ranks, "rank"), " was found that keeps to ",
              FormatBytes(static_cast<double>(options_.byte_limit)), " per rank; the least is ",
              FormatBytes(static_cast<double>(least_bytes_))));
    }
    if (!best_) {
      throw ConfigError(Str("no program for ", Plural(sizes_.ranks, "rank"), " runs with ",
                            Plural(options_.memory, "activation"), " per rank; it needs ",
                            least_memory_));
    }
    Improve();
    best_->program.name = "auto";
    return std::move(*best_);
  }

 private:
  /// Simulates the program. Returns nothing if it needs more memory than the limits allow.
  std::optional<Measured> Measure(const Program& program) {
    Simulation simulation = Simulate(program, options_.costs);
    const int needed = Largest(simulation.peak_activations);
    least_memory_ = std::min(least_memory_, needed);
    const int64_t bytes = options_.bytes ? options_.bytes(program) : 0;
    if (needed > memory_ || !FitsBytes(bytes)) return std::nullopt;
    const double price =
        Price(simulation.makespan, static_cast<double>(bytes), options_.memory_weight);
    Score score = {price, Largest(simulation.wait), needed};
    return Measured{std::move(simulation), std::move(score)};
  }

  bool FitsBytes(int64_t bytes) {
    if (options_.byte_limit == 0 || bytes <= options_.byte_limit) return true;
    least_bytes_ = std::min(least_bytes_, bytes);
    return false;
  }

  void Try(Program program, const std::string& origin) {
    std::optional<Measured> measured = Measure(program);
    if (!measured || (best_ && measured->score >= score_)) return;
    score_ = measured->score;
    best_ = FoundProgram{std::move(program), origin, std::move(measured->simulation)};
  }

  void TryNamed() {
    for (const std::string& name : TriedSchedules()) {
      if (!Fits(name, sizes_)) continue;
      Program program = WithoutIdle(Generate(name, sizes_));
      const bool is_elsewhere =
          !options_.stage_ranks.empty() && program.stage_ranks != options_.stage_ranks;
      if (is_elsewhere) continue;
      Try(std::move(program), name);
    }
  }

  void TryLists() {
    const int stages = sizes_.ranks * sizes_.stages_per_rank;
    const int64_t actions = int64_t{3} * stages * sizes_.micro_batches;
    int64_t budget = kMaxListed;
    for (const ListRules& rules : Rules(stages)) {
      for (const std::vector<int>& map : Maps()) {
        if ((budget -= actions) < 0) return;
        Program empty = IdleGrid("list", map, sizes_.ranks, sizes_.micro_batches, 0);
        Try(ListSchedule(std::move(empty), options_.costs, rules), "list");
      }
    }
  }

  std::vector<std::vector<int>> Maps() const {
    if (!options_.stage_ranks.empty()) return {options_.stage_ranks};
    std::vector<std::vector<int>> maps = {LoopMap(sizes_.ranks, sizes_.stages_per_rank)};
    if (sizes_.stages_per_rank > 1) maps.push_back(VMap(sizes_.ranks, sizes_.stages_per_rank));
    return maps;
  }

  /// The rules to try. More memory than needed can make a list schedule slower, so several limits
  /// of memory are tried.
  std::vector<ListRules> Rules(int stages) const {
    std::vector<ListRules> all;
    const int v = sizes_.stages_per_rank;
    for (int memory : {2 * stages, stages + v, stages, stages / 2 + v, v}) {
      memory = std::min(memory, memory_);
      if (memory < v) continue;
      for (double patience : {0.0, 0.5, 0.99}) {
        for (bool forward : {true, false}) {
          for (bool backward : {true, false}) all.push_back({forward, backward, patience, memory});
        }
      }
    }
    return all;
  }

  /// Local search: where a rank waits before an action, it tries to move one of the next three
  /// actions in front of that action, as long as this improves the score and the budget lasts.
  void Improve() {
    int64_t budget = kMaxImproved;
    const int64_t actions = CountActions(best_->program);
    bool improves = true;
    while (improves) {
      improves = false;
      for (int r = 0; r < best_->program.ranks(); ++r) {
        for (size_t i = 1; i + 1 < best_->program.rows[r].size(); ++i) {
          if (!WaitsBefore(r, i)) continue;
          for (size_t from = i + 1; from < std::min(i + 4, best_->program.rows[r].size()); ++from) {
            if ((budget -= actions) < 0) return;
            improves |= MoveForward(r, from, i);
          }
        }
      }
    }
  }

  bool WaitsBefore(int r, size_t i) const {
    const auto& times = best_->simulation.times[r];
    return times[i].start > times[i - 1].end;
  }

  bool MoveForward(int r, size_t from, size_t to) {
    if (!MayPass(best_->program.rows[r], from, to)) return false;
    Program program = best_->program;
    auto& row = program.rows[r];
    std::rotate(row.begin() + to, row.begin() + from, row.begin() + from + 1);
    std::optional<Measured> measured = MeasureMoved(program);
    if (!measured || measured->score >= score_ || !Check(program).ok()) return false;
    score_ = measured->score;
    best_->program = std::move(program);
    best_->simulation = std::move(measured->simulation);
    return true;
  }

  /// Does what Measure() does; also returns nothing if the ranks would wait for each other.
  std::optional<Measured> MeasureMoved(const Program& program) {
    try {
      return Measure(program);
    } catch (const ConfigError&) {
      return std::nullopt;
    }
  }

  /// False if the move would let an action pass another of the same stage and micro-batch, or
  /// change the ascending order of a stage's gradients.
  static bool MayPass(const std::vector<Action>& row, size_t from, size_t to) {
    const ActionParts movers(row[from]);
    for (size_t i = to; i < from; ++i) {
      for (const Action& passed : ActionParts(row[i])) {
        for (const Action& mover : movers) {
          const bool is_same_stage = mover.stage == passed.stage;
          if (is_same_stage && (mover.micro_batch == passed.micro_batch ||
                                (mover.kind != Kind::kForward && passed.kind != Kind::kForward &&
                                 mover.micro_batch > passed.micro_batch))) {
            return false;
          }
        }
      }
    }
    return true;
  }

  const Sizes& sizes_;
  const ProgramSearchOptions& options_;
  const int memory_;
  int least_memory_ =
      std::numeric_limits<int>::max();  // the least need of the programs that were tried
  int64_t least_bytes_ = std::numeric_limits<int64_t>::max();
  std::optional<FoundProgram> best_;
  Score score_;  // of best_
};

}  // namespace

double Price(double seconds, double bytes, double memory_weight) {
  return memory_weight > 0 ? seconds * std::pow(bytes, memory_weight) : seconds;
}

double LowerBound(const Sizes& sizes, const Costs& costs) {
  const int stages = sizes.ranks * sizes.stages_per_rank;
  const auto backward = [&](int s) {
    const double split = CostAt(costs.input_grad, s) + CostAt(costs.weight_grad, s);
    return costs.backward.empty() ? split : std::min(split, CostAt(costs.backward, s));
  };
  // The time of one micro-batch through all stages and back, and the sum of all work. Overlaps may
  // cost less than their parts, so there is no bound with them.
  double way = 0, work = 0;
  for (int s = 0; s < stages; ++s) {
    way += CostAt(costs.forward, s) + std::min(CostAt(costs.input_grad, s), backward(s));
    work += sizes.micro_batches * (CostAt(costs.forward, s) + backward(s));
  }
  if (!costs.overlap.empty()) return 0;
  way += 2 * (sizes.ranks - 1) * costs.comm;
  // Some rank has at least the mean of the work, and all ranks wait for their first input. Of the P
  // ranks, the k-th to start (from 0) has at least k stages before it.
  double head = 0, heads = 0;
  for (int k = 1; k < sizes.ranks; ++k) {
    head += CostAt(costs.forward, k - 1) + costs.comm;
    heads += head;
  }
  return std::max(way, (work + heads) / sizes.ranks);
}

Program Auto(const Sizes& sizes) { return WithIdleSteps(SearchProgram(sizes).program); }

FoundProgram SearchProgram(const Sizes& sizes, const ProgramSearchOptions& options) {
  return ProgramSearch(sizes, options).Run();
}

}  // namespace strata::schedule
