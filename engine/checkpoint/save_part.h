// One rank's part of a save: it writes the slices that it owns into its own file.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"

namespace strata {

/// A slice that a rank owns, and where its bytes are in memory.
struct OwnedSlice {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  TensorSpec spec;  ///< of the whole tensor
  Slice slice;
  const void* data = nullptr;  ///< the slice's elements, row-major, without gaps
};

/// Writes the slices to FOLDER/rank-NNNNN.safetensors and syncs the file. Without slices it writes
/// no file. Returns the part for the manifest. Throws WorldError when the disk fails, and when
/// `cancelled` becomes true.
SavePart WritePart(const std::string& folder, int rank, const std::vector<OwnedSlice>& slices,
                   const std::atomic<bool>& cancelled);

}  // namespace strata
