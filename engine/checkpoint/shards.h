// Shards: a folder of published weights, as Hugging Face's hub has them: one file, or several with
// an index of which tensor is where.
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

/// The file of the folder that says what is in it: model.safetensors, model.safetensors.index.json,
/// pytorch_model.bin or pytorch_model.bin.index.json, the first that is there, as transformers
/// takes it. None where there is none of them.
std::optional<std::string> PublishedIn(const std::string& folder);

/// The files that an index, read from `path`, names, each with the tensors that it says they have.
/// Throws WorldError for a damaged one and for files outside of its folder.
std::map<std::string, std::vector<std::string>> ParseIndex(std::string_view text,
                                                           const std::string& path);

/// What files of tensors hold, each tensor whole and without a digest. `path` is one file
/// (TensorFile), or an index: {"weight_map": {"h.0.weight": "model-00001-of-00002.safetensors"}}.
/// All are parameters, but for moments that merged saves have, "3.weight#exp_avg". Tensors of
/// dtypes that Strata does not know are its `foreign`. Throws WorldError that names file
/// and tensor for a damaged index, shards that are missing or lie outside the folder, and tensors
/// that they lack.
Manifest ManifestOfFiles(const std::string& path);

}  // namespace strata
