// LinksJob: the job of `strata doctor --links`. Its ranks only measure the links between them; rank
// 0 sends the table.
#pragma once

#include <string>
#include <utility>

#include "engine/base/value.h"
#include "engine/cost/link_table.h"
#include "launcher/commands/rank_places.h"

namespace strata::launcher {

class LinksJob : public JobProgram {
 public:
  /// Runs as many ranks as the placement has. `transport`: "gloo" or "nccl".
  LinksJob(Placement placement, std::string transport)
      : places_(std::move(placement)), transport_(std::move(transport)) {}

  RankRange Prepare(Reporter& reporter) override;
  void OnForked() override { places_.OnForked(); }
  void Run(int rank, RankReporter& reporter) override;

 private:
  RankPlaces places_;
  const std::string transport_;
};

/// Adds to `job` what a worker needs besides its placement.
void SetLinksJob(const std::string& transport, Value& job);
/// The transport of a links job; "" for any other job.
std::string TransportOfLinksJob(const Value& job);

/// The table in a message of rank 0. REQUIRES: the message has a table.
LinkTable LinksOf(const Value& message);

}  // namespace strata::launcher
