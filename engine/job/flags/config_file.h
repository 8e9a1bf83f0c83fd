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

/// A key of DeepSpeed's that is refused, and what to use instead.
struct RefusedKey {
  const char* key;
  const char* why;
};
std::span<const RefusedKey> RefusedKeys();

/// The job overrides (overrides.h) of the file's text. `flags` are the overrides of the command
/// line. They take precedence, and may give the data degree that train_batch_size needs. `name` is
/// the file's name, for errors. Throws ConfigError when the text is no JSON object, when keys are
/// unknown or refused, and when sizes contradict each other.
Value ConfigOverrides(const std::string& text, const std::string& name, const Value& flags);

/// The same for a file. Throws ConfigError also when the file cannot be read.
Value ReadConfigFile(const std::string& path, const Value& flags);

/// The text of the file, or pipe, that `--FLAG=PATH` names. Throws ConfigError where it cannot be
/// read, for a folder, and for a device, which may have no end.
std::string ReadFlagFile(const char* flag, const std::string& path);

}  // namespace strata
