// Writes mapped tensors for other programs: one safetensors file, or a folder as on Hugging Face's
// hub. The output is written under a temporary name, synced, and renamed. If the process is killed
// at any moment, the output is complete or not there.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/weights/mapped_weights.h"

namespace strata {

/// Writes one safetensors file. Throws WorldError if the disk fails, a source is damaged, or
/// something is already at `path`.
void WriteWeights(const MappedWeights& weights, const std::vector<MappedTensor>& tensors,
                  const std::string& path);

/// Writes the folder: model.safetensors, or model-00001-of-00003.safetensors ... with
/// model.safetensors.index.json if the tensors take more than `shard_bytes` bytes; a tensor is
/// never divided. Also config.json, if the map has a config and the source is a save, whose job has
/// the facts that tensors do not show. If the source is a published folder, its config.json and the
/// files of its tokenizer are copied. Returns the names of the files. Throws as WriteWeights()
/// does.
std::vector<std::string> WritePublished(const MappedWeights& weights,
                                        const std::vector<MappedTensor>& tensors,
                                        const std::string& folder, int64_t shard_bytes);

/// Writes the folder: `file`, a safetensors file with all tensors, and `value` in the JSON file
/// `json`. Throws as WriteWeights() does.
void WriteWithConfig(const MappedWeights& weights, const std::vector<MappedTensor>& tensors,
                     const std::string& folder, const std::string& file, const std::string& json,
                     const Value& value);

}  // namespace strata
