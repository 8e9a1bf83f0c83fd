// InspectReport: what `strata inspect` shows about saves and safetensors files.
#pragma once

#include <string>

namespace strata::launcher {

/// The result of an inspection.
struct Inspection {
  std::string text;   ///< whole lines
  bool whole = true;  ///< true when nothing is damaged or missing
};

/// Inspects a safetensors file, a save, or a folder of saves. Reads every byte and compares the
/// digests. Throws WorldError when `path` is none of these, or is too damaged to show anything.
Inspection Inspect(const std::string& path);

}  // namespace strata::launcher
