// What one rank does for a save: it writes the tensors that it owns into a file of its own.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"

namespace strata {

/// A slice that a rank owns, with its bytes.
struct OwnedSlice {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  TensorSpec spec;  ///< of the whole tensor
  Slice slice;
  const void* data = nullptr;  ///< the slice's elements, row-major, without gaps
};

/// Writes them to FOLDER/rank-NNNNN.safetensors, synced on return; nothing where there are none.
/// Throws WorldError when the disk does not take it, and when `cancelled` has become true.
SavePart WritePart(const std::string& folder, int rank, const std::vector<OwnedSlice>& slices,
                   const std::atomic<bool>& cancelled);

}  // namespace strata
