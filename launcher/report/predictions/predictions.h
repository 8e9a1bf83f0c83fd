// Predictions: writes what a model gives for samples into a file, in their order.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/runtime/interface/engine.h"
#include "launcher/report/predictions/part_file.h"

namespace strata::launcher {

/// What is written of each sample.
struct PredictionOptions {
  /// The class with the largest output and its probability (softmax) instead of all outputs; only
  /// as .csv and .jsonl.
  bool classes = false;
  std::vector<std::string> names = {};  ///< of the classes; empty = their numbers
};

/// The formats, by the file's end:
///   .npy          the array of all outputs
///   .safetensors  the tensor "output"
///   .csv          sample,output_0,output_1,... or sample,class,probability
///   .jsonl        {"sample": 0, "output": [...]}, or {"sample": 0, "class": ..., "probability":
///   ...}
class Predictions {
 public:
  /// Throws ConfigError for a name without one of these ends, and options that do not fit it;
  /// WorldError when something is at `path`.
  /// `what` says of what these are predictions: those that another run left unfinished, of the
  /// same, are gone on with (PartFile). Throws ConfigError for those of something else.
  Predictions(const std::string& path, PredictionOptions options, const std::string& what = "");
  ~Predictions();
  Predictions(const Predictions&) = delete;
  Predictions& operator=(const Predictions&) = delete;

  /// The next rows. Throws ConfigError where they have another shape or dtype than those before, or
  /// classes are asked for and a row is no list of floating numbers, or there are not as many
  /// names.
  void Add(const Predicted& rows);
  /// The file has its name from here on. Throws WorldError.
  void Finish();
  int64_t samples() const { return samples_; }
  /// Calls of Add() that wrote these, in earlier runs too.
  int64_t parts() const { return file_->parts(); }

 private:
  class Format;
  class Array;
  class Lines;

  void CheckRows(const TensorSpec& row) const;

  const std::string path_;
  bool has_classes_ = false;
  size_t class_names_ = 0;
  TensorSpec spec_;  // of the rows, their number 0; before the first -1
  int64_t samples_ = 0;
  std::unique_ptr<Format> format_;
  std::unique_ptr<PartFile> file_;
};

}  // namespace strata::launcher
