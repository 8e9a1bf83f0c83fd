// Writes one rank's part of a save: the slices that the rank owns, into a file of its own.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"

namespace strata {

/// A slice that a rank owns, and the address of its bytes.
struct OwnedSlice {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  TensorSpec spec;  ///< the shape and dtype of the whole tensor
  Slice slice;
  const void* data = nullptr;  ///< the slice's elements, row-major, without gaps
};

/// Writes the slices to FOLDER/rank-NNNNN.safetensors and syncs the file. Writes no file if there
/// are no slices. Returns the part for the manifest. Throws WorldError if the disk fails, and when
/// `cancelled` becomes true.
SavePart WritePart(const std::string& folder, int rank, const std::vector<OwnedSlice>& slices,
                   const std::atomic<bool>& cancelled);

}  // namespace strata
