// Manifest: what a save consists of, as plain data. It knows nothing of the grid that made it: each
// tensor is listed under its layer path with its full shape, and with the slices that hold it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/checkpoint/slice.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

/// What a tensor is to the training.
enum class TensorKind {
  kParameter,  ///< "3.weight"
  kBuffer,     ///< "4.running_mean"
  kMoment,     ///< of the optimizer, for a parameter: "3.weight#exp_avg"
};

/// "parameter", "buffer", "moment".
const char* TensorKindName(TensorKind kind);

/// A slice as one file holds it.
struct SavedSlice {
  Slice slice;
  std::string file;    ///< "rank-00002.safetensors", beside the manifest
  std::string digest;  ///< of its bytes
  bool operator==(const SavedSlice&) const = default;
};

/// A tensor of the model or the optimizer.
struct SavedTensor {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  TensorSpec spec;                 ///< of the whole tensor
  std::vector<SavedSlice> slices;  ///< each element once
  bool operator==(const SavedTensor&) const = default;
};

/// The name of a slice in its file: that of the tensor, with the slice behind it unless it is
/// whole.
std::string StoredSliceName(const SavedTensor& tensor, const Slice& slice);

struct SavedFile {
  std::string name;
  int64_t bytes = 0;
  std::string header_digest;  ///< of the bytes before its tensors
  bool operator==(const SavedFile&) const = default;
};

/// Where the training stands.
struct TrainingState {
  int64_t step = 0;     ///< steps done; with the batch below it is the position in the data
  int64_t skipped = 0;  ///< of these, left out as they were not finite: the optimizer has not run
  /// Of a step, over all replicas.
  int64_t micro_batches = 0;
  int64_t micro_batch_size = 0;
  int64_t seed = 0;       ///< of initial values, dropout and shuffling
  std::string optimizer;  ///< "adamw"
  std::string job_name;
  Value job;               ///< Job::ToValue()
  std::string job_digest;  ///< of that
  bool operator==(const TrainingState&) const = default;
};

struct Manifest {
  TrainingState training;
  int64_t sequence = 0;  ///< of the save in its folder: later ones have larger numbers
  std::vector<SavedFile> files;
  std::vector<SavedTensor> tensors;  ///< in the order of layers; moments behind their parameter

  const SavedTensor* Find(std::string_view name) const;
  const SavedFile* FindFile(std::string_view name) const;
  bool operator==(const Manifest&) const = default;
};

/// What one rank adds to a manifest: at most one file, and its slices.
struct SavePart {
  std::vector<SavedFile> files;
  std::vector<SavedTensor> tensors;

  std::string ToJson() const;
  /// The text comes from a peer. Throws WorldError.
  static SavePart FromJson(std::string_view json);
};

/// Adds the part's files and tensors; slices of a tensor that is there already join it. Throws
/// WorldError when two ranks disagree about a tensor.
void AddPart(Manifest& manifest, SavePart part);

/// The text of the file manifest.json; it begins with its own digest.
std::string ManifestText(const Manifest& manifest);
/// Throws WorldError that begins with `source`: damaged anywhere, of a later format, or telling of
/// names, shapes, slices and files that cannot be.
Manifest ParseManifest(std::string_view text, const std::string& source);
/// The digest that the text of a manifest begins with, unchecked.
std::string ManifestDigest(std::string_view text);

}  // namespace strata
