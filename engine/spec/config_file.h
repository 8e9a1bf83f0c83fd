// The JSON file of --config: keys of the job, and those of DeepSpeed's configuration files that say
// the same in other words.
//
//   DeepSpeed                              the job
//   train_batch_size                       batch.size of each of the data replicas
//   train_micro_batch_size_per_gpu         batch.micro_batch_size
//   gradient_accumulation_steps            batch.micro_batches
//   optimizer {type, params}               optimizer: Adam, AdamW, SGD
//   scheduler {type, params}               lr_schedule: WarmupLR, WarmupDecayLR, WarmupCosineLR
//   gradient_clipping                      clip
//   zero_optimization {stage}              zero
//   fp16, bf16, amp {enabled: false}       nothing
//
// What such a file says besides is refused by name.
#pragma once

#include <string>

#include "engine/base/value.h"

namespace strata {

/// The job overrides (overrides.h) that the file's text asks for. `flags`: those of the command
/// line, which hold over it: train_batch_size needs the data degree, said there or here. `name`:
/// the file's, for errors. Throws ConfigError: no JSON object, keys that nobody knows or that are
/// refused, sizes that contradict each other.
Value ConfigOverrides(const std::string& text, const std::string& name, const Value& flags);

/// The same of a file. Throws ConfigError when it cannot be read.
Value ReadConfigFile(const std::string& path, const Value& flags);

}  // namespace strata
