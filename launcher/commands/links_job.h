// LinksJob: ranks that only measure the links between them, for `strata doctor --links`. Rank 0
// sends the table.
#pragma once

#include <string>
#include <utility>

#include "engine/base/value.h"
#include "engine/cost/link_table.h"
#include "launcher/commands/rank_places.h"

namespace strata::launcher {

class LinksJob : public JobProgram {
 public:
  /// As many ranks as the placement has. `transport`: "gloo" or "nccl".
  LinksJob(Placement placement, std::string transport)
      : places_(std::move(placement)), transport_(std::move(transport)) {}

  RankRange Prepare(Reporter& reporter) override;
  void OnForked() override { places_.OnForked(); }
  void Run(int rank, RankReporter& reporter) override;

 private:
  RankPlaces places_;
  const std::string transport_;
};

/// What a worker needs to know of the job beside its placement.
void SetLinksJob(const std::string& transport, Value& job);
/// The transport of such a job; "" for any other.
std::string TransportOfLinksJob(const Value& job);

/// The table of a message of rank 0's. REQUIRES: it is one.
LinkTable LinksOf(const Value& message);

}  // namespace strata::launcher
