// The command `strata inspect FILE|FOLDER`, which shows what was saved and checks that it is
// undamaged.
#include <optional>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/job/flags/flags.h"
#include "launcher/command.h"
#include "launcher/report/inspect_report.h"

namespace strata::launcher {
namespace {

std::string MergeInto(const std::string& path, const std::string& out, bool only_weights) {
  const auto save = Checkpoint::Open(path);
  int64_t tensors = 0;
  Merge(*save, out, [&](const SavedTensor& tensor) {
    const bool wanted = !only_weights || tensor.kind != TensorKind::kMoment;
    tensors += wanted;
    return wanted;
  });
  return Str(out, ": ", Plural(tensors, "tensor"), " of ", save->path(), "\n");
}

std::optional<int> EventsOf(const Value& own) {
  if (own["events"].is_null()) return std::nullopt;
  return static_cast<int>(own["events"].as_int());
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  const Flags flags(arguments, command.flags);
  flags.CheckAllTaken();
  for (const auto& [key, value] : flags.job().as_map()) {
    throw ConfigError(Str("inspect takes no job, and so no --", key));
  }
  if (flags.rest().size() != 1) {
    throw ConfigError(Str("expected one file or folder: strata inspect ", command.usage));
  }
  const std::string& path = flags.rest()[0];
  const Value& out = flags.own()["merge"];
  const bool only_weights = flags.own()["only_weights"].as_bool();
  if (only_weights && out.is_null()) {
    throw ConfigError("--only_weights says what to merge: give --merge=FILE as well");
  }
  if (!out.is_null()) {
    if (EventsOf(flags.own())) throw ConfigError("--events: --merge takes no flight record");
    Print(MergeInto(path, out.as_string(), only_weights));
    return 0;
  }
  const Inspection inspection = Inspect(path, EventsOf(flags.own()));
  Print(inspection.text);
  return inspection.whole ? 0 : 1;
}

}  // namespace

Command InspectCommand() {
  return {
      .name = "inspect",
      .usage = "FILE|FOLDER [--merge=OUT.safetensors [--only_weights]]",
      .summary = "shows what was saved, and whether it is whole; flight records",
      .details =
          "Takes a save (runs/a/step-00000040), a folder of saves, a safetensors file, what\n"
          "torch.save() wrote of tensors, or a folder of published weights. Shows every tensor\n"
          "with shape and dtype, and of a save whether its bytes are those that were saved; exits\n"
          "with 1 when some are not. Of a flight record (flight-DATE-TIME.json) it shows what "
          "each\n"
          "rank did last.",
      .flags =
          {Field::String("merge", "writes all tensors, each whole, into this new file").Optional(),
           Field::Bool("only_weights", "merges no state of the optimizer").Default(false),
           Field::Int("events", "of each rank of a flight record: the last so many; else 12")
               .AtLeast(1)
               .Optional()},
      .run = &Run};
}

}  // namespace strata::launcher
