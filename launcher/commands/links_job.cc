#include "launcher/commands/links_job.h"

#include <cstdlib>

#include "engine/base/machine/identity.h"
#include "engine/base/text.h"
#include "lua/host/engine_api.h"

namespace strata::launcher {
namespace {

constexpr const char* kMeasures = "measures_links";
constexpr const char* kLinks = "links";

}  // namespace

RankRange LinksJob::Prepare(Reporter&) {
  // The starter must not have a thread pool when the ranks are forked.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  lua::LoadEngine();
  const RankRange range = places_.RangeOf(places_.placement().world_size);
  places_.OpenMeeting(range);
  return range;
}

void LinksJob::Run(int rank, RankReporter& reporter) {
  if (rank != 0) OnForked();
  reporter.OnAbort(nullptr, [rank] { return Str("rank ", rank, ": measuring links"); });
  const LinkTable links = lua::LoadEngine().MeasureLinks(transport_, places_.Of(rank), HostName());
  if (rank == 0) reporter.Send(Value::MakeMap({{"type", kLinks}, {kLinks, ToValue(links)}}));
}

void SetLinksJob(const std::string& transport, Value& job) { job.Set(kMeasures, transport); }

std::string TransportOfLinksJob(const Value& job) {
  return job.Has(kMeasures) ? job[kMeasures].as_string() : "";
}

LinkTable LinksOf(const Value& message) {
  return ReadLinks(message[kLinks], "what rank 0 has measured");
}

}  // namespace strata::launcher
