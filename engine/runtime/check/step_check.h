// StepCheck: finds ranks, memory and links that give wrong numbers without an error.
//
// Every plan gives the same bits, so another rank can repeat a part of a step and compare. In a
// checked step a seed that all ranks know draws a rank, one of its stages and a micro-batch, a
// second rank that repeats that work and a third that decides. Between the last backward and the
// update all ranks do the following, in this order; nobody sends outside of it, so that a finding
// leaves nobody waiting:
//
//   1. The drawn rank sends its record (step_record.h) and the stage's parameters; the second rank
//      builds the stage, runs the actions (replay.h) and compares the digests of what they give.
//   2. All ranks gather what they found: that comparison, the digests of all messages of the step
//      at both ends, and whether parameters and optimizer state still have the digests that they
//      had after the update before. Replicas must have equal parameters.
//   3. If the comparison failed, the third rank repeats the work, too, and is believed. With two
//      ranks both repeat it, which names a rank only if its fault was transient.
//   4. After the update 1 to 3 are done for the update of the drawn stage. The step counts, and is
//      logged or saved, only behind that.
//
// Every finding becomes the same CorruptionError on all ranks. What is not repeated: the sums over
// replicas and over tied layers, the data, and all steps that are not checked. Those cost nothing.
// A checked step costs about one micro-batch of one stage, building that stage, and reading all
// parameters and states twice.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/runtime/check/flip.h"
#include "engine/runtime/check/step_record.h"
#include "engine/runtime/stage/rank_context.h"
#include "engine/runtime/update/rank_stages.h"

namespace strata {

/// The ranks of a check, drawn for a step. `third` is -1 if there are only two ranks.
struct CheckRanks {
  int drawn = 0;
  int second = 0;
  int third = -1;
};

/// What a rank that repeated some work says of it.
struct Repetition {
  bool is_damaged = false;  ///< the record did not arrive as it was sent
  std::string differs;      ///< what differs first; "" if nothing does
  std::string theirs;       ///< one digest of what the record has
  std::string mine;         ///< one digest of what the repetition gave
};

/// The ranks that were wrong, by the repetitions; both if that cannot be decided. `again`: of the
/// third rank, or with two ranks of the drawn rank and of the second, in this order.
std::vector<int> WrongRanks(const CheckRanks& ranks, const Repetition& first,
                            const std::vector<Repetition>& again);

/// Order of calls in a checked step: Begin(), the row with the record, CheckRow(), CheckUpdate().
/// AfterUpdate() follows every step's update. All but Begin() are collective over all ranks.
class StepCheck {
 public:
  /// Collective. REQUIRES: at least two ranks, on CPUs, without a model axis. Both arguments must
  /// outlive this object. `every`: steps between two checked ones; the same on all ranks. Throws
  /// ConfigError if the ranks have other processors or numbers of threads, on which bits depend.
  StepCheck(const RankContext& context, RankStages& stages, int64_t every);

  /// `step`: the number of steps done before it.
  bool IsChecked(int64_t step) const { return (step + 1) % every_ == 0; }
  /// The record for RunSpec::record, valid until the next call. `micro_batches`: of this rank.
  StepRecord* Begin(int64_t step, int micro_batches);
  /// Throws CorruptionError on all ranks if something differs.
  void CheckRow(const RunSpec& run);
  /// Calls `update`, which runs the optimizers with these arguments; throws as CheckRow().
  void CheckUpdate(double lr_factor, double divisor, const std::function<void()>& update);
  /// If the next step is checked, keeps the digests of parameters and optimizer state.
  void AfterUpdate(int64_t step);
  /// Says that parameters, states or stages were changed by others than the optimizer.
  void Forget() { kept_.clear(); }

 private:
  using Repeat = std::function<Digests(const TensorPacket&)>;

  Digests MemoryBits() const;
  std::string BitsOfReplica(const Digests& memory) const;
  const OwnStage& drawn_stage() const;
  int rank() const { return context_.rank(); }
  bool is_drawn() const { return rank() == ranks_.drawn; }
  std::optional<Repetition> RepeatAt(int to, const at::Tensor& packet, const Repeat& repeat);
  std::vector<Value> Gather(Value mine);
  void Compare(TensorPacket packet, Value report, const Repeat& repeat);
  void CheckMemory(const std::vector<Value>& reports) const;
  void CheckMessages(const std::vector<Value>& reports) const;
  void CheckReplicas(const std::vector<Value>& reports) const;
  std::string FunctionsHint(int stage) const;
  [[noreturn]] void Refuse(const std::string& what) const;
  std::string NameOf(int rank, const std::vector<Value>& reports, int stage = -1) const;

  const RankContext& context_;
  RankStages& stages_;
  Group& world_;
  const int64_t every_;
  std::optional<Flip> flip_;
  int64_t step_ = 0;  // of the last Begin()
  CheckRanks ranks_;
  std::optional<StepRecord> record_;
  Digests kept_;  // empty: unknown
};

}  // namespace strata
