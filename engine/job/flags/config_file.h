// Reads the JSON file of --config. It holds keys of the job, and keys of DeepSpeed's configuration
// files, which are translated:
//
//   DeepSpeed                              the job
//   train_batch_size                       batch.size times the number of replicas
//   train_micro_batch_size_per_gpu         batch.micro_batch_size
//   gradient_accumulation_steps            batch.micro_batches
//   optimizer {type, params}               optimizer: Adam, AdamW, SGD
//   scheduler {type, params}               lr_schedule: WarmupLR, WarmupDecayLR, WarmupCosineLR
//   gradient_clipping                      clip; 0 is none
//   zero_optimization {stage}              zero
//   fp16, bf16                             precision; float32 where neither is enabled
//   communication_data_type                precision.reduce
//   amp {enabled: false}                   nothing
//
// All other keys are refused by name.
#pragma once

#include <span>
#include <string>

#include "engine/base/value.h"

namespace strata {

/// A key of DeepSpeed that is refused, and what to use instead.
struct RefusedKey {
  const char* key;
  const char* why;
};
std::span<const RefusedKey> RefusedKeys();

/// Returns the job overrides (overrides.h) that the file's text gives. `flags` are the overrides of
/// the command line. They take precedence, and may give the data degree that train_batch_size
/// needs. `name` is the file's name, for errors. Throws ConfigError if the text is not a JSON
/// object, if keys are unknown or refused, and if sizes contradict each other.
Value ConfigOverrides(const std::string& text, const std::string& name, const Value& flags);

/// As ConfigOverrides(), for a file. Throws ConfigError also if the file cannot be read.
Value ReadConfigFile(const std::string& path, const Value& flags);

/// Returns the text of the file, or pipe, that `--FLAG=PATH` names. Throws ConfigError if it cannot
/// be read, is a folder, or is a device, which may have no end.
std::string ReadFlagFile(const char* flag, const std::string& path);

}  // namespace strata
