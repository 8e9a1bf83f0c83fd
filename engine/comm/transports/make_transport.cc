#include "engine/comm/transports/make_transport.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/cuda/cuda_library.h"
#include "engine/comm/transports/gloo.h"

namespace strata {

std::unique_ptr<Transport> MakeTransport(const std::string& name, const RankPlace& place,
                                         const std::vector<LinkSpec>& links,
                                         const std::vector<GroupSpec>& groups, double timeout) {
  if (name == "gloo") return MakeGlooTransport(place, links, groups, timeout);
  if (name == "nccl" || name == "both") {
    const std::vector<GroupSpec> host_groups = name == "both" ? groups : std::vector<GroupSpec>();
    return LoadCudaLibrary().make_nccl_transport(place, links, groups, host_groups, timeout);
  }
  const std::vector<std::string> known = {"gloo", "nccl", "both"};
  throw ConfigError(Str("no transport \"", name, "\" between processes", DidYouMean(name, known)));
}

}  // namespace strata
