// Manifest: the list of a save's contents, as plain data. Each tensor is listed under its layer
// path with its full shape, and with the slices that hold its elements. So a save does not depend
// on the grid that wrote it.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/base/value.h"
#include "engine/checkpoint/slice.h"

namespace strata {

/// What a tensor is for.
enum class TensorKind {
  kParameter,  ///< "3.weight"
  kBuffer,     ///< "4.running_mean"
  kMoment,     ///< the optimizer's state for a parameter: "3.weight#exp_avg"
};

/// "parameter", "buffer", "moment".
const char* TensorKindName(TensorKind kind);

/// A slice of a tensor, and the file that holds it.
struct SavedSlice {
  Slice slice;
  std::string file;    ///< "rank-00002.safetensors", beside the manifest
  std::string digest;  ///< of the slice's bytes
  bool operator==(const SavedSlice&) const = default;
};

/// A tensor of the model or the optimizer.
struct SavedTensor {
  std::string name;
  TensorKind kind = TensorKind::kParameter;
  TensorSpec spec;                 ///< of the whole tensor
  std::vector<SavedSlice> slices;  ///< together they hold each element once
  bool operator==(const SavedTensor&) const = default;
};

/// The name of a slice in its file: the tensor's name, followed by the slice unless that is the
/// whole tensor.
std::string StoredSliceName(const SavedTensor& tensor, const Slice& slice);

/// A file of a save.
struct SavedFile {
  std::string name;
  int64_t bytes = 0;
  std::string header_digest;  ///< of the bytes in front of the tensors' bytes
  bool operator==(const SavedFile&) const = default;
};

/// A tensor in a file of others, of a dtype that Strata does not know, so that nobody can read it.
struct ForeignTensor {
  std::string name;
  std::string dtype;  ///< as safetensors calls it: "U16"
  std::vector<int64_t> shape;
  bool operator==(const ForeignTensor&) const = default;
};
/// "tensor "count" is U16 (2,), a dtype that Strata does not know"
std::string TroubleWith(const ForeignTensor& tensor);

/// How many steps the optimizer had done when a parameter began to learn, by the parameter's name.
/// Those that learnt from the first step on are left out.
using BeganSteps = std::map<std::string, int64_t, std::less<>>;

/// How far the training has come, and of which job it is.
struct TrainingState {
  int64_t step = 0;       ///< steps done; with the batch below it is the position in the data
  int64_t skipped = 0;    ///< of these, left out as they were not finite: the optimizer has not run
  BeganSteps began = {};  ///< each parameter's own steps are those behind these
  Value loss_scale = {};  ///< LossScale::state(); null = the loss was not scaled
  Value monitors = {};    ///< Monitors::state(); null = nothing was looked at
  /// Of a step, over all replicas.
  int64_t micro_batches = 0;
  int64_t micro_batch_size = 0;
  int64_t samples = 0;    ///< of data.train; 0 = it has no end, or an older save does not tell
  Value data = {};        ///< SavedData (engine/runtime/saves); null = it has no names
  int64_t seed = 0;       ///< of initial values, dropout and shuffling
  std::string optimizer;  ///< "adamw"
  Value plan = {};        ///< {pipe, cuts, schedule}; null = an older save does not tell
  std::string job_name;
  Value job;               ///< Job::ToValue()
  std::string job_digest;  ///< the digest of `job`
  bool operator==(const TrainingState&) const = default;
};

/// All of a save's description.
struct Manifest {
  TrainingState training;
  int64_t sequence = 0;  ///< counts the saves of a folder: a later save has a larger number
  std::vector<SavedFile> files;
  std::vector<SavedTensor> tensors;  ///< in the order of layers; moments behind their parameter
  std::vector<ForeignTensor> foreign = {};  ///< of files of others only; saves have none

  /// The entry of this name; null when there is none.
  const SavedTensor* Find(std::string_view name) const;
  const SavedFile* FindFile(std::string_view name) const;
  bool operator==(const Manifest&) const = default;
};

/// What one rank adds to a manifest: at most one file, and its slices.
struct SavePart {
  std::vector<SavedFile> files;
  std::vector<SavedTensor> tensors;

  std::string ToJson() const;
  /// Reads the text, which comes from another rank. Throws WorldError for a wrong one.
  static SavePart FromJson(std::string_view json);
};

/// Adds the part's files and tensors to the manifest. If a tensor is listed already, its slices are
/// added to the entry. Throws WorldError when two ranks disagree about a tensor.
void AddPart(Manifest& manifest, SavePart part);

/// The text of the file manifest.json. It begins with the digest of the rest.
std::string ManifestText(const Manifest& manifest);
/// Reads the text of manifest.json. Throws WorldError that begins with `source`, when the text is
/// damaged, has a later format, or has names, shapes, slices or files that are impossible.
Manifest ParseManifest(std::string_view text, const std::string& source);
/// The digest at the beginning of a manifest's text. It is not checked here.
std::string ManifestDigest(std::string_view text);

}  // namespace strata
