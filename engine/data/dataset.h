// Dataset: a fixed number of samples that are read by index. Torch-free. All data with an end is
// one: sources (engine/data) and steps over other data (engine/data). A Lua data
// function(i) is none, since it has no end.
//
// What a Dataset leaves to others: the order of an epoch, and which replica has which samples
// (Sampler). So every source is shuffled, shared out and gone on with in the same way.
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

/// Which sample, and in which pass over the data: random steps give another one in each.
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
  /// Shapes and dtypes of one sample's tensors, without the batch dim. Targets may be none.
  virtual TensorSpecs inputs() const { return {input()}; }
  virtual TensorSpecs targets() const { return {target()}; }
  /// Number of classes of the target; 0 when the target is no class.
  virtual int64_t classes() const = 0;
  /// Their names, where the data has some.
  virtual std::vector<std::string> class_names() const { return {}; }
  /// The same of the data that a function of the script (map) was given.
  virtual std::vector<std::string> names_before_map() const { return class_names(); }
  /// What a table's cells became numbers by: the text of a TableEncoding. "" = the data is no
  /// table.
  virtual std::string encoding() const { return ""; }
  /// What a user might not expect of how the files were read, a line each.
  virtual std::vector<std::string> notes() const { return {}; }
  /// The file that a sample is read from, within the data's folder; "" = samples have none.
  virtual std::string name_of(int64_t) const { return ""; }
  /// False: zeros stand for them (the option targets=false), and nobody may train or evaluate.
  virtual bool has_targets() const { return true; }
  /// Copies a sample to `input` and `target`: its tensors behind each other, input_bytes() and
  /// target_bytes() of them. A null pointer skips that half. Several threads may call it at once.
  /// REQUIRES: 0 <= index < size(). Throws WorldError that names the file, and ConfigError that
  /// names the line of a script's function.
  virtual void Read(Sample sample, std::byte* input, std::byte* target) const = 0;
  /// Several samples behind each other, `epoch` that of all.
  virtual void ReadBatch(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                         std::byte* target) const;
  /// A sample with its own shapes: those of inputs() and targets(), unless dim 0 differs between
  /// samples. Then Read() refuses the samples that are not as the first one.
  virtual PlainSample ReadPlain(Sample sample) const;
  /// One line for people: "digits: 1,437 images of 8x8 (train)".
  virtual std::string description() const = 0;

  int64_t input_bytes() const;
  int64_t target_bytes() const;
  DataFacts facts() const {
    return {size(),        inputs(),           targets(),  classes(),
            class_names(), names_before_map(), encoding(), notes()};
  }

  /// For data of one input and one target.
  virtual TensorSpec input() const { return inputs().at(0); }
  virtual TensorSpec target() const { return targets().at(0); }
};

/// Whether a sample is as another but for the length of dim 0, as those of ragged data are.
bool AreAlikeButForDim0(const TensorSpecs& one, const TensorSpecs& other);

/// Random numbers of a sample: the same for every number of workers, replicas and stages.
/// `purpose` tells apart the steps that draw.
uint64_t SampleSeed(uint64_t seed, Sample sample, uint64_t purpose);

/// What opening data needs to know.
struct DatasetContext {
  std::string script_folder;        ///< relative paths are relative to it
  std::optional<TensorSpec> input;  ///< the job's `input`: CIFAR-10 resizes its images to it
  int64_t seed = 0;                 ///< of random steps
  DataScript* script = nullptr;     ///< for functions of a script; must outlive the dataset
};

}  // namespace strata
