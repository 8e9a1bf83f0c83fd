// Shards: a folder of published weights, as on Hugging Face's hub: one file, or several files with
// an index that says which tensor is in which.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/files/tensor_file.h"
#include "engine/checkpoint/manifest.h"

namespace strata {

/// The file of the folder that holds or lists its tensors: the first of model.safetensors,
/// model.safetensors.index.json, pytorch_model.bin and pytorch_model.bin.index.json that exists, in
/// the order that transformers uses. None if there is none of them.
std::optional<std::string> PublishedIn(const std::string& folder);

/// Parses an index that was read from `path`: the files that it names, each with the names of its
/// tensors. Throws WorldError for a damaged index and for files outside its folder.
std::map<std::string, std::vector<std::string>> ParseIndex(std::string_view text,
                                                           const std::string& path);

/// Describes the tensors of published files, each whole and without a digest. `path` is one file
/// (TensorFile), or an index: {"weight_map": {"h.0.weight": "model-00001-of-00002.safetensors"}}.
/// All tensors are parameters, except the moments of merged saves, such as "3.weight#exp_avg".
/// Tensors of dtypes that Strata does not know are in `foreign`. Throws WorldError that names the
/// file and the tensor for a damaged index, shards that are missing or outside the folder, and
/// tensors that a shard lacks.
Manifest ManifestOfFiles(const std::string& path);

}  // namespace strata
