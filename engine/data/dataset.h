// Dataset: samples with an end, read by index, without torch. Digits, CIFAR-10, text, and the
// synthetic sources are Datasets; a Lua data function is not (it has no end).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/spec/job.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples.
  virtual int64_t size() const = 0;
  /// One sample, without the batch dim.
  virtual TensorSpec input() const = 0;
  virtual TensorSpec target() const = 0;
  /// Number of classes of the target, 0 where it has none.
  virtual int64_t classes() const = 0;
  /// Copies sample `index`. REQUIRES: 0 <= index < size(); room for input().bytes() and
  /// target().bytes(). Either may be null. Safe to call from several threads.
  virtual void Read(int64_t index, std::byte* input, std::byte* target) const = 0;
  /// One line for people: "digits: 1,437 images of 8x8 (train)".
  virtual std::string description() const = 0;
};

struct DatasetContext {
  std::string script_folder;        ///< where relative paths start
  std::optional<TensorSpec> input;  ///< the job's `input`: CIFAR-10 resizes its images to it
};

/// Opens a source. `spec.kind` is "digits", "cifar10", "text", "images" or "tokens"; REQUIRES: not
/// "" or "function". Throws ConfigError for an unknown kind or options that contradict each other,
/// and WorldError that names a missing or broken file and what was expected of it.
std::unique_ptr<Dataset> OpenDataset(const DataSpec& spec, const DatasetContext& context);

}  // namespace strata
