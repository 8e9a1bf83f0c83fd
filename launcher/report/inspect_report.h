// InspectReport: what `strata inspect` shows about saves and files of tensors.
#pragma once

#include <string>

namespace strata::launcher {

/// The result of an inspection.
struct Inspection {
  std::string text;   ///< whole lines
  bool whole = true;  ///< true when nothing is damaged or missing
};

/// Inspects a save, a folder of saves, or published weights (Checkpoint::Open()). Reads every byte
/// that has a digest and compares it. Throws WorldError when `path` is none of these, or is too
/// damaged to show anything.
Inspection Inspect(const std::string& path);

}  // namespace strata::launcher
