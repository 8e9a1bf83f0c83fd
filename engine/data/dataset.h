// Dataset: a fixed number of samples that are read by index. Torch-free. The sources digits,
// cifar10, text and the synthetic ones are Datasets. A Lua data function is none, since it has no
// end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/spec/fields/tensor_spec.h"
#include "engine/spec/job/job.h"

namespace strata {

class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples.
  virtual int64_t size() const = 0;
  /// Shape and dtype of one sample's input and target, without the batch dim.
  virtual TensorSpec input() const = 0;
  virtual TensorSpec target() const = 0;
  /// Number of classes of the target; 0 when the target is no class.
  virtual int64_t classes() const = 0;
  /// Copies sample `index` to `input` and `target`, which have room for input().bytes() and
  /// target().bytes(). A null pointer skips that half. Several threads may call it at once.
  /// REQUIRES: 0 <= index < size().
  virtual void Read(int64_t index, std::byte* input, std::byte* target) const = 0;
  /// One line for people: "digits: 1,437 images of 8x8 (train)".
  virtual std::string description() const = 0;
};

/// What a source knows about the job.
struct DatasetContext {
  std::string script_folder;        ///< relative paths are relative to it
  std::optional<TensorSpec> input;  ///< the job's `input`: CIFAR-10 resizes its images to it
};

/// Opens a source. `spec.kind` is "digits", "cifar10", "text", "images" or "tokens". Throws
/// ConfigError for another kind and for options that contradict each other. Throws WorldError that
/// names a missing or broken file and the expected content.
std::unique_ptr<Dataset> OpenDataset(const DataSpec& spec, const DatasetContext& context);

}  // namespace strata
