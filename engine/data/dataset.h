// Dataset: a fixed number of samples that are read by index. Torch-free. All data with an end is a
// Dataset: sources, and steps over other data. A Lua data function(i) is not, since it has no end.
//
// A Dataset does not decide the order of an epoch, nor which replica gets which samples; Sampler
// does. So shuffling, sharding and resuming work in the same way for every source.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "engine/base/fields/tensor_spec.h"
#include "engine/data/data_script.h"
#include "engine/job/data_source.h"
#include "engine/job/job.h"

namespace strata {

/// The index of a sample, and the pass over the data in which it is read: random steps give another
/// sample in each epoch.
struct Sample {
  Sample(int64_t the_index, int64_t the_epoch = 0) : index(the_index), epoch(the_epoch) {}
  int64_t index;
  int64_t epoch;
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  /// Number of samples.
  virtual int64_t size() const = 0;
  /// Shapes and dtypes of one sample's tensors, without the batch dim. There may be no targets.
  virtual TensorSpecs inputs() const { return {input()}; }
  virtual TensorSpecs targets() const { return {target()}; }
  /// Number of classes of the target; 0 if the target is not a class.
  virtual int64_t classes() const = 0;
  /// The names of the classes; empty if they have none.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// The class names of the data before a function of the script (map).
  virtual std::vector<std::string> names_before_map() const { return class_names(); }
  /// How the cells of a table became numbers: the text of a TableEncoding. "" if the data is not a
  /// table.
  virtual std::string encoding() const { return ""; }
  /// Notes for the user about how the files were read, one line each.
  virtual std::vector<std::string> notes() const { return {}; }
  /// The file that a sample is read from, relative to the data's folder; "" if samples have no
  /// file.
  virtual std::string name_of(int64_t) const { return ""; }
  /// False if the data has no targets (the option targets=false). Zeros stand in their place, and
  /// the data can only be used for predictions.
  virtual bool has_targets() const { return true; }
  /// Copies a sample to `input` and `target`: its tensors one after the other, input_bytes() and
  /// target_bytes() in all. A null pointer skips that half. Several threads may call it at once.
  /// REQUIRES: 0 <= index < size(). Throws WorldError that names the file, and ConfigError that
  /// names the line of a script's function.
  virtual void Read(Sample sample, std::byte* input, std::byte* target) const = 0;
  /// Reads several samples, one after the other, all in the same `epoch`.
  virtual void ReadBatch(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                         std::byte* target) const;
  /// Returns a sample with its own shapes. They are those of inputs() and targets(), except that
  /// dim 0 may differ between samples of ragged data. For such data Read() refuses the samples
  /// whose shape differs from the first one's.
  virtual PlainSample ReadPlain(Sample sample) const;
  /// The limits of packed rows (pack.cc); not known of other data.
  virtual DocumentLimits documents() const { return {}; }
  /// One line for people: "digits: 1,437 images of 8x8 (train)".
  virtual std::string description() const = 0;

  int64_t input_bytes() const;
  int64_t target_bytes() const;
  DataFacts facts() const {
    return {size(),     inputs(), targets(),  classes(), class_names(), names_before_map(),
            encoding(), notes(),  documents()};
  }

  /// The single input and the single target, for data that has one of each.
  virtual TensorSpec input() const { return inputs().at(0); }
  virtual TensorSpec target() const { return targets().at(0); }
};

/// True if two samples have equal shapes and dtypes except for the length of dim 0, as samples of
/// ragged data have.
bool AreAlikeButForDim0(const TensorSpecs& one, const TensorSpecs& other);

/// A seed for the random numbers of a sample. It does not depend on the number of workers, replicas
/// or stages. `purpose` distinguishes the steps that draw numbers.
uint64_t SampleSeed(uint64_t seed, Sample sample, uint64_t purpose);

/// The surroundings in which data is opened.
struct DatasetContext {
  std::string script_folder;  ///< the folder that relative paths start from
  /// The job's `input`. CIFAR-10 resizes its images to it.
  std::optional<TensorSpec> input;
  int64_t seed = 0;  ///< the seed of random steps
  /// Calls the script's functions; must outlive the dataset. Null if there is no script.
  DataScript* script = nullptr;
  /// True below the step pack: samples are whole texts, and ReadPlain() gives them without padding.
  /// A source that cuts or fills texts up to a length does not.
  bool documents = false;
};

}  // namespace strata
