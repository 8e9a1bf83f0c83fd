// InspectReport: the report of `strata inspect` on saves and on files of tensors.
#pragma once

#include <optional>
#include <string>

namespace strata::launcher {

/// The result of an inspection.
struct Inspection {
  std::string text;   ///< whole lines
  bool whole = true;  ///< true if nothing is damaged or missing
};

/// Inspects a save, a folder of saves, published weights (Checkpoint::Open()) or a flight record.
/// Of a flight record it shows the last `events` (default 12) of each rank. Reads every byte that
/// has a digest and compares it. Throws ConfigError if `events` is given for anything but a flight
/// record, and WorldError if `path` is none of these or is too damaged to show anything.
Inspection Inspect(const std::string& path, std::optional<int> events = {});

}  // namespace strata::launcher
