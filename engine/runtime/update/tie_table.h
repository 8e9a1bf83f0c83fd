// TieTable: the parameters that layers share, on one rank.
//
// Every use of a key has a gradient of its own, on whatever stage. They are added in ascending
// order of use, so the bits do not depend on the cut; then every stage that holds the key updates
// its copy with the same sum. Copies start equal (BuildStage) and so stay equal, which Check()
// proves.
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
  /// The group of the ranks that hold a tie when the training begins.
  static std::string GroupName(const TiePlan& tie) { return "tie " + tie.key; }
  /// Its ranks on one pipeline (`pipe`: the transport's rank of each pipe rank), in the order of
  /// their first uses. Frozen ties need no group: one rank.
  static std::vector<int> Holders(const TiePlan& tie, const Plan& plan,
                                  const std::vector<int>& pipe);

  /// `stages`: by number, null where the stage is on another rank. Everything must outlive the
  /// table.
  TieTable(const Plan& plan, const std::vector<Stage*>& stages, const std::vector<int>& pipe,
           Transport& transport);

  /// REDUCE_TIED of all this rank's stages: every gradient that an optimizer reads becomes the sum
  /// over all uses.
  void Reduce(Progress& progress);

  /// Collective, where the plan has ties: throws WorldError naming the key and the ranks when the
  /// copies of a parameter differ.
  void Check(Progress& progress) const;

 private:
  /// One shared tensor that this rank holds.
  struct Shared {
    std::string key;                  ///< of the tie
    std::string id;                   ///< of this tensor of it, the same on all ranks
    std::vector<int> holders;         ///< Holders()
    std::vector<int> places;          ///< of each use, ascending: its rank's among the holders
    Group* group = nullptr;           ///< the holders', or the pipeline's; null: one rank holds all
    std::vector<at::Tensor> uses;     ///< gradients of this rank's uses, ascending
    std::vector<at::Tensor> reduced;  ///< those of them that an optimizer reads
    std::vector<at::Tensor> copies;   ///< their values
  };

  void Add(const TiePlan& tie, int tensor, const Plan& plan, const std::vector<Stage*>& stages,
           const std::vector<int>& pipe, Transport& transport);
  static at::Tensor Sum(const Shared& shared);
  /// The gradients of all uses in their order, in one memory. `own`: this rank's.
  static std::vector<at::Tensor> Gather(const Shared& shared, const std::vector<at::Tensor>& own);
  static void Gather(const Shared& shared, const at::Tensor& mine, const at::Tensor& all,
                     const std::vector<int64_t>& bounds);
  void Check(const Shared& shared, const std::vector<std::string>& all) const;

  Transport& transport_;
  const bool has_ties_;  // of any rank
  std::vector<Shared> shared_;
  const Doing reduces_{-1, "REDUCE_TIED"};  // for reports
};

}  // namespace strata
