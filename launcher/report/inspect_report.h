// InspectReport: what `strata inspect` shows about saves and files of tensors.
#pragma once

#include <optional>
#include <string>

namespace strata::launcher {

/// The result of an inspection.
struct Inspection {
  std::string text;   ///< whole lines
  bool whole = true;  ///< true when nothing is damaged or missing
};

/// Inspects a save, a folder of saves, published weights (Checkpoint::Open()), or a flight record,
/// of which the last `events` (12) of each rank are shown. Reads every byte that has a digest and
/// compares it. Throws ConfigError for `events` of anything else, WorldError when `path` is none of
/// these, or is too damaged to show anything.
Inspection Inspect(const std::string& path, std::optional<int> events = {});

}  // namespace strata::launcher
