// Writes mapped tensors as others read them: one safetensors file, or a folder as Hugging Face's
// hub has it. Each is written beside its place, synced, and renamed: whatever is killed at whatever
// moment, there is the whole of it or nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/weights/mapped_weights.h"

namespace strata {

/// Throws WorldError when the disk fails, a source is damaged, or something is at `path` already.
void WriteWeights(const MappedWeights& weights, const std::vector<MappedTensor>& tensors,
                  const std::string& path);

/// model.safetensors, or model-00001-of-00003.safetensors ... with model.safetensors.index.json
/// where the tensors take more than `shard_bytes`; a tensor is never divided. And config.json,
/// where the map knows what is in it and the source is a save (its job has what tensors do not
/// tell). Returns the names of the files. Throws as WriteWeights().
std::vector<std::string> WritePublished(const MappedWeights& weights,
                                        const std::vector<MappedTensor>& tensors,
                                        const std::string& folder, int64_t shard_bytes);

}  // namespace strata
