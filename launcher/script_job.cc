#include "launcher/script_job.h"

#include "engine/base/error.h"
#include "engine/base/gpu.h"
#include "engine/base/text.h"

namespace strata::launcher {

ScriptArguments ParseScriptArguments(const Command& command,
                                     const std::vector<std::string>& arguments) {
  Flags flags(arguments, command.flags);
  const std::vector<std::string>& rest = flags.rest();
  if (rest.empty()) {
    throw ConfigError(Str("expected a script: strata ", command.name, " ", command.usage));
  }
  if (rest.size() > 1) {
    throw ConfigError(
        Str("expected one script, got ", Join(rest, " and "), "; flags begin with --"));
  }
  std::string path = rest[0];
  return {std::move(path), std::move(flags)};
}

Field NprocField() {
  return Field::Int("nproc", "ranks to start; none = the product of the degrees")
      .AtLeast(1)
      .AtMost(4096)
      .Optional();
}

Plan PlanHere(const Job& job, const Value& own_flags, Script& script) {
  PlanOptions options;
  const Value& nproc = own_flags["nproc"];
  options.world_size = nproc.is_null() ? 0 : static_cast<int>(nproc.as_int());
  options.gpus = GpuCount();
  return MakePlan(job, options, &script);
}

}  // namespace strata::launcher
