// Low-rank parts (LoRA) in files: those of the package PEFT, and merged into the weights beside
// which they were trained. Torch-free.
//
// A folder of PEFT has adapter_config.json and adapter_model.safetensors, whose tensors are named
// "base_model.model." and the published name: "base_model.model.model.layers.0.self_attn.q_proj.
// lora_A.weight". A and B have the same layout in both, also where a map transposes the weight.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/checkpoint/checkpoint.h"
#include "engine/checkpoint/weights/mapped_weights.h"

namespace strata {

/// Rank, alpha and dropout of parts, as adapter_config.json and a job's `adapt` say them.
struct LowRankOptions {
  int64_t rank = 0;
  double alpha = 0;
  double dropout = 0;
};

/// True for the name in a save of A or B.
bool IsPartName(std::string_view name);

/// The map from names in saves to those in adapter_model.safetensors. `map` is that of the weights.
/// Find() throws ConfigError for a part beside a weight that is not one whole published tensor.
WeightMap PeftMap(const WeightMap& map);

/// True if the folder holds PEFT's files.
bool IsPeftFolder(const std::string& folder);
/// The path of its tensors.
std::string PeftTensors(const std::string& folder);
/// Reads adapter_config.json. Throws WorldError for a damaged file, and ConfigError for what Strata
/// does not compute: another method than LoRA, DoRA, rsLoRA, trained biases, ranks or alphas by
/// pattern.
LowRankOptions ReadPeftConfig(const std::string& folder);
/// The same for the text of the file `path`.
LowRankOptions ParsePeftConfig(std::string_view text, const std::string& path);

/// The options of the job that made the save. Throws ConfigError if that job had no `adapt`.
LowRankOptions LowRankOptionsOf(const Checkpoint& save);
/// Writes the save's parts, and what was trained besides, as a folder of PEFT; with `averages`
/// their averages (ema) where the save has them. Returns the number of tensors. Throws as
/// WriteWeights() and LowRankOptionsOf() do.
int64_t WritePeft(const Checkpoint& save, const WeightMap& map, bool averages,
                  const std::string& folder);

/// Adds alpha / rank B A of each part of `save` to the weight among `tensors`, which have published
/// names. What was trained besides replaces its tensor. `averages` as in WritePeft(). Returns the
/// number of changed tensors.
/// `save` must outlive the tensors. Throws ConfigError for a weight that is not among the tensors,
/// or has another shape.
int64_t MergeParts(const Checkpoint& save, const LowRankOptions& options, const WeightMap& map,
                   bool averages, std::vector<MappedTensor>& tensors);

}  // namespace strata
