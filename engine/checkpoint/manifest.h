// Manifest: the description of a save's contents, as plain data. Each tensor is listed under its
// layer path with its full shape, and with the slices that hold its elements. So a save does not
// depend on the grid that wrote it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"
#include "engine/checkpoint/slice.h"

namespace strata {

/// The role of a tensor.
enum class TensorKind {
  kParameter,  ///< "3.weight"
  kBuffer,     ///< "4.running_mean"
  kMoment,     ///< the optimizer's state for a parameter: "3.weight#exp_avg"
};

/// The name of the kind in the manifest: "parameter", "buffer", "moment".
const char* TensorKindName(TensorKind kind);

/// A slice of a tensor, and the file that holds it.
struct SavedSlice {
  Slice slice;
  std::string file;    ///< "rank-00002.safetensors", beside the manifest
  std::string digest;  ///< the digest of the slice's bytes
  bool operator==(const SavedSlice&) const = default;
};

/// A tensor of the model or the optimizer.
struct SavedTensor {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  TensorSpec spec;                 ///< the shape and dtype of the whole tensor
  std::vector<SavedSlice> slices;  ///< together they hold each element exactly once
  bool operator==(const SavedTensor&) const = default;
};

/// The name of a slice in its file: the tensor's name, followed by the slice unless it is the whole
/// tensor.
std::string StoredSliceName(const SavedTensor& tensor, const Slice& slice);

/// A file of a save.
struct SavedFile {
  std::string name;
  int64_t bytes = 0;
  std::string header_digest;  ///< the digest of the bytes before the tensors' bytes
  bool operator==(const SavedFile&) const = default;
};

/// A tensor in a file of published weights whose dtype Strata does not know, so that it cannot be
/// read.
struct ForeignTensor {
  std::string name;
  std::string dtype;  ///< safetensors' name of the dtype: "U16"
  std::vector<int64_t> shape;
  bool operator==(const ForeignTensor&) const = default;
};
/// An error text: "tensor "count" is U16 (2,), a dtype that Strata does not know".
std::string TroubleWith(const ForeignTensor& tensor);

/// For each parameter by name: the number of steps that the optimizer had done when the parameter
/// began to learn. Parameters that learn from the first step on are omitted.
using BeganSteps = std::map<std::string, int64_t, std::less<>>;

/// The progress of a training, and the job that it is of.
struct TrainingState {
  /// Steps done. Together with the batch below they give the position in the data.
  int64_t step = 0;
  /// Steps among these that were skipped because they were not finite; the optimizer did not run.
  int64_t skipped = 0;
  /// The optimizer's steps for a parameter are counted from here on.
  BeganSteps began = {};
  Value loss_scale = {};  ///< LossScale::state(); null = the loss was not scaled
  Value monitors = {};    ///< Monitors::state(); null = nothing was monitored
  /// The micro-batches of a step, over all replicas.
  int64_t micro_batches = 0;
  int64_t micro_batch_size = 0;
  /// Samples of data.train; 0 = the data has no end, or the save is from an older version.
  int64_t samples = 0;
  /// SavedData (engine/runtime/saves); null = the data has no names.
  Value data = {};
  int64_t seed = 0;       ///< seed of initial values, dropout and shuffling
  std::string optimizer;  ///< "adamw"
  Value plan = {};        ///< {pipe, cuts, schedule}; null in saves of older versions
  /// DigestOfBase() of the weights that a job with `adapt` leaves as they are, and that its save
  /// does not hold; "" = the save holds all weights.
  std::string base = {};
  std::string job_name;
  Value job;               ///< Job::ToValue()
  std::string job_digest;  ///< the digest of `job`
  bool operator==(const TrainingState&) const = default;
};

/// The complete description of a save.
struct Manifest {
  TrainingState training;
  /// Numbers the saves of a folder: a later save has a larger number.
  int64_t sequence = 0;
  std::vector<SavedFile> files;
  /// In the order of layers; moments follow their parameter.
  std::vector<SavedTensor> tensors;
  /// Only for published weights; saves have none.
  std::vector<ForeignTensor> foreign = {};

  /// The entry with this name; null if there is none.
  const SavedTensor* Find(std::string_view name) const;
  const SavedFile* FindFile(std::string_view name) const;
  bool operator==(const Manifest&) const = default;
};

/// The part of a manifest that one rank contributes: at most one file, and its slices.
struct SavePart {
  std::vector<SavedFile> files;
  std::vector<SavedTensor> tensors;

  std::string ToJson() const;
  /// Reads the text, which comes from another rank. Throws WorldError if it is invalid.
  static SavePart FromJson(std::string_view json);
};

/// Adds the part's files and tensors to the manifest. If a tensor is already listed, its slices are
/// added to the entry. Throws WorldError if two ranks disagree about a tensor.
void AddPart(Manifest& manifest, SavePart part);

/// The text of the file manifest.json. It begins with the digest of the rest.
std::string ManifestText(const Manifest& manifest);
/// Reads the text of manifest.json. Throws WorldError that begins with `source`, if the text is
/// damaged, has a later format, or has impossible names, shapes, slices or files.
Manifest ParseManifest(std::string_view text, const std::string& source);
/// The digest at the beginning of a manifest's text. It is not checked here.
std::string ManifestDigest(std::string_view text);

}  // namespace strata
