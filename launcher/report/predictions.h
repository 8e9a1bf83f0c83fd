// Predictions: writes a model's outputs for samples into a file, in the order of the samples.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "engine/runtime/engine.h"
#include "launcher/report/part_file.h"

namespace strata::launcher {

/// Options for what is written for each sample.
struct PredictionOptions {
  /// Writes the class with the largest output and its probability instead of all outputs; only for
  /// .csv and .jsonl.
  bool classes = false;
  std::vector<std::string> names = {};  ///< names of the classes; empty = numbers are written
  /// True if the outputs are probabilities; otherwise the softmax is applied.
  bool probabilities = false;
  /// The job's loss, if each output is a separate label (multi-label); then classes are refused.
  std::string loss_of_labels = {};
  /// The file from which a sample was read, by its number: written first in .csv and .jsonl. Null =
  /// samples have no files.
  std::function<std::string(int64_t sample)> file_of = {};
  /// The numbers of outputs whose rows are padded along their first dim. .jsonl leaves out what is
  /// beyond the sample's own length.
  std::set<size_t> filled_up = {};
  /// Returns a sample's own length by its number; needed if filled_up is not empty.
  std::function<int64_t(int64_t sample)> length_of = {};
};

/// The formats, by the file's extension:
///   .npy          the array of the output
///   .safetensors  the tensor "output"; of several outputs "output_0", "output_1", ...
///   .csv          sample,output_0,output_1,... or sample,class,probability
///   .jsonl        {"sample": 0, "output": [...]}, of several outputs {"sample": 0, "output_0":
///                 [...], "output_1": [...]}, or {"sample": 0, "class": ..., "probability": ...}
class Predictions {
 public:
  /// `what` identifies the predictions (model, data, flags). If another run left the same
  /// predictions unfinished, they are continued (PartFile). Throws ConfigError for a name without
  /// one of these extensions, for options that it does not support, and for an unfinished file of
  /// other predictions; WorldError if something is at `path`.
  Predictions(const std::string& path, PredictionOptions options, const std::string& what = "");
  ~Predictions();
  Predictions(const Predictions&) = delete;
  Predictions& operator=(const Predictions&) = delete;

  /// Adds the next rows. Throws ConfigError if they have another shape or dtype than those before
  /// (allowed in .jsonl), if there are several outputs (not supported by .csv and .npy), or if
  /// classes are requested and a row is not a list of floating numbers or does not fit the number
  /// of names.
  void Add(const Predicted& blocks);
  /// Completes the file and gives it its name. Throws WorldError.
  void Finish();
  int64_t samples() const { return samples_; }
  /// The number of calls of Add() that wrote these, including earlier runs.
  int64_t parts() const { return file_->parts(); }

 private:
  class Format;
  class Array;
  class Lines;

  void CheckRows(const TensorSpecs& row) const;
  void CheckClasses(const TensorSpecs& row) const;
  void FinishSeveral();

  const std::string path_;
  bool has_classes_ = false;
  size_t class_names_ = 0;
  TensorSpecs row_;  // of the last sample, one for each output; empty before the first
  int64_t samples_ = 0;
  std::unique_ptr<Format> format_;
  std::unique_ptr<PartFile> file_;
};

}  // namespace strata::launcher
