// TieTable: the parameters that several layers share (ties), as seen by one rank.
//
// Every use of a tie has its own gradient, on whichever stage it is. The gradients are added in
// ascending order of uses, so the bits do not depend on the cuts; then every stage that holds the
// tie updates its copy with the same sum. The copies start equal (BuildStage) and stay equal;
// Check() verifies it.
#pragma once

#include <string>
#include <vector>

#include "engine/comm/group.h"
#include "engine/comm/transport.h"
#include "engine/plan/plan.h"
#include "engine/runtime/stage/stage.h"
#include "engine/runtime/watch/progress.h"

namespace strata {

class TieTable {
 public:
  /// The name of the group of ranks that hold a tie when the training begins.
  static std::string GroupName(const TiePlan& tie) { return "tie " + tie.key; }
  /// The ranks of one pipeline that hold the tie, in the order of their first uses. `pipe`: the
  /// transport's rank for each pipe rank. Frozen ties need no group, so only their first rank is
  /// returned.
  static std::vector<int> Holders(const TiePlan& tie, const Plan& plan,
                                  const std::vector<int>& pipe);

  /// `stages`: by number, null if the stage is on another rank. All arguments must outlive the
  /// table.
  TieTable(const Plan& plan, const std::vector<Stage*>& stages, const std::vector<int>& pipe,
           Transport& transport);

  /// REDUCE_TIED of all stages of this rank: replaces every gradient that an optimizer reads by the
  /// sum over all uses.
  void Reduce(Progress& progress);

  /// Collective if the plan has ties: throws WorldError, naming the key and the ranks, if the
  /// copies of a parameter differ.
  void Check(Progress& progress) const;

 private:
  /// One tied tensor that this rank holds.
  struct Shared {
    std::string key;           ///< the key of the tie
    std::string id;            ///< identifies the tensor, the same on all ranks
    std::vector<int> holders;  ///< Holders()
    /// For each use, in ascending order: the index of its rank in `holders`.
    std::vector<int> places;
    /// The group of the holders, or of the pipeline; null if one rank holds all uses.
    Group* group = nullptr;
    std::vector<at::Tensor> uses;     ///< gradients of this rank's uses, in ascending order
    std::vector<at::Tensor> reduced;  ///< those of `uses` that an optimizer reads
    std::vector<at::Tensor> copies;   ///< the values that belong to `reduced`
  };

  void Add(const TiePlan& tie, int tensor, const Plan& plan, const std::vector<Stage*>& stages,
           const std::vector<int>& pipe, Transport& transport);
  static at::Tensor Sum(const Shared& shared);
  /// Returns the gradients of all uses in order, in newly allocated memory. `own`: those of this
  /// rank.
  static std::vector<at::Tensor> Gather(const Shared& shared, const std::vector<at::Tensor>& own);
  static void Gather(const Shared& shared, const at::Tensor& mine, const at::Tensor& all,
                     const std::vector<int64_t>& bounds);
  void Check(const Shared& shared, const std::vector<std::string>& all) const;

  Transport& transport_;
  const bool has_ties_;  // true if any rank has ties
  std::vector<Shared> shared_;
  const Doing reduces_{-1, "REDUCE_TIED"};  // for reports
};

}  // namespace strata
