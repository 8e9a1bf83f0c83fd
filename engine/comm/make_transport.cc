#include "engine/comm/make_transport.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/comm/gloo.h"

namespace strata {

std::unique_ptr<Transport> MakeTransport(const std::string& name, const RankPlace& place,
                                         double timeout) {
  if (name == "gloo") return MakeGlooTransport(place, timeout);
  throw ConfigError(
      Str("there is no transport \"", name, "\" between processes; this build has gloo"));
}

}  // namespace strata
