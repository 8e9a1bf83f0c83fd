// Predictions: writes what a model gives for samples into a file, in their order.
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

/// What is written of each sample.
struct PredictionOptions {
  /// The class with the largest output and its probability instead of all outputs; only as .csv and
  /// .jsonl.
  bool classes = false;
  std::vector<std::string> names = {};  ///< of the classes; empty = their numbers
  /// The outputs are probabilities; else their softmax is.
  bool probabilities = false;
  /// The job's loss where each of several outputs is a label of its own: there are no classes then.
  std::string loss_of_labels = {};
  /// The file that a sample, by its number, was read from: stands first in .csv and .jsonl. Null =
  /// samples have none.
  std::function<std::string(int64_t sample)> file_of = {};
  /// Outputs by number whose rows are filled up along their first dim, for .jsonl, which leaves out
  /// what is behind the sample's own length.
  std::set<size_t> filled_up = {};
  std::function<int64_t(int64_t sample)> length_of = {};  ///< where some are
};

/// The formats, by the file's end:
///   .npy          the array of the output
///   .safetensors  the tensor "output"; of several outputs "output_0", "output_1", ...
///   .csv          sample,output_0,output_1,... or sample,class,probability
///   .jsonl        {"sample": 0, "output": [...]}, of several outputs {"sample": 0, "output_0":
///                 [...], "output_1": [...]}, or {"sample": 0, "class": ..., "probability": ...}
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

  /// The next rows. Throws ConfigError where they have another shape or dtype than those before,
  /// which .jsonl takes, or are of several outputs, which .csv and .npy do not take, or classes are
  /// asked for and a row is no list of floating numbers, or there are not as many names.
  void Add(const Predicted& blocks);
  /// The file has its name from here on. Throws WorldError.
  void Finish();
  int64_t samples() const { return samples_; }
  /// Calls of Add() that wrote these, in earlier runs too.
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
  TensorSpecs row_;  // of the last sample, an output each; none before the first
  int64_t samples_ = 0;
  std::unique_ptr<Format> format_;
  std::unique_ptr<PartFile> file_;
};

}  // namespace strata::launcher
