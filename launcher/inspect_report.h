// InspectReport: what `strata inspect` shows of saves and of safetensors files.
#pragma once

#include <string>

namespace strata::launcher {

struct Inspection {
  std::string text;   ///< whole lines
  bool whole = true;  ///< nothing is damaged or missing
};

/// Of a safetensors file, a save, or a folder of saves. Reads every byte and compares its digest.
/// Throws WorldError where `path` is none of these, or says nothing that could be shown.
Inspection Inspect(const std::string& path);

}  // namespace strata::launcher
