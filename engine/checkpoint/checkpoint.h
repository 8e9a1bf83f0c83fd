// Checkpoint: reads a save. Any rank can read any box of any tensor; the grid that wrote the save
// does not matter. All bytes are verified by their digests.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/checkpoint/files/tensor_file.h"
#include "engine/checkpoint/manifest.h"

namespace strata {

/// Whether the path, without a slash at its end, is one of a save: by its name, or because it is a
/// folder with a manifest, such as a copy of a save under another name. What is published weights
/// or a folder of saves as well, is that.
bool IsSave(const std::string& path);

class Checkpoint {
 public:
  /// `path` is a save (IsSave()), a folder of saves (the save that `latest` names is
  /// opened), or published weights: a safetensors file, what torch.save() wrote, a folder of
  /// either with an index or one file (shards.h). These have parameters, as well as the
  /// moments of a merged save, and no digests. Reads the descriptions of the tensors, not their
  /// bytes. Throws WorldError when nothing is there or it is damaged; WithNewestWholeSave() adds a
  /// save that is good.
  static std::unique_ptr<Checkpoint> Open(const std::string& path);

  /// The path of the save, or of the published weights.
  const std::string& path() const { return path_; }
  /// For published weights only `files` and `tensors` are filled in.
  const Manifest& manifest() const { return manifest_; }
  /// Whether it is published weights: no training can go on from them.
  bool is_plain_file() const { return is_plain_file_; }

  /// Reads all bytes of the tensor and compares their digests; where it has none, sees only that
  /// the file has as many. From any thread. Throws WorldError that names the tensor and its file.
  void Verify(const SavedTensor& tensor) const;
  /// Writes the elements of `box` to `to`, row-major, without gaps. The digests are verified during
  /// the reading, so `to` is not to be used after an error. From any thread. Throws as Verify().
  /// REQUIRES: the box lies within the tensor.
  void Read(const SavedTensor& tensor, const Slice& box, void* to) const;
  /// Gives the whole tensor to `sink` in pieces, from the first byte to the last. Throws as
  /// Verify(), perhaps after `sink` got pieces.
  using Sink = std::function<void(const void* bytes, int64_t count)>;
  void ReadWhole(const SavedTensor& tensor, const Sink& sink) const;

 private:
  Checkpoint(std::string path, Manifest manifest, std::string folder, bool is_plain_file);
  /// Where the bytes of a slice are. Throws WorldError when the file does not have the slice with
  /// the expected dtype and size.
  struct Place {
    const TensorFile& file;
    const StoredTensor& stored;
  };
  Place Find(const SavedTensor& tensor, const SavedSlice& saved) const;
  const TensorFile& FileOf(const SavedTensor& tensor, const std::string& name) const;
  void ReadSlice(const SavedTensor& tensor, const SavedSlice& saved,
                 const std::function<void(const Slice& piece, const void* bytes)>& take) const;

  const std::string path_;
  const Manifest manifest_;
  const std::string folder_;  // of its files
  const bool is_plain_file_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<TensorFile>> files_;
};

/// Reads the whole save. "" when it is complete and undamaged, else the text of the first error.
std::string TroubleWithSave(const std::string& save);

/// The error `trouble`, followed by the newest undamaged save in the same folder and the option
/// that resumes from it. Reads whole saves. `save` is the damaged save, or the folder of saves.
std::string WithNewestWholeSave(const std::string& trouble, const std::string& save);

/// Writes the tensors for which `wanted` is true into a new safetensors file at `path`, each whole,
/// under its own name. Throws WorldError when the save is damaged, the disk is full or something is
/// at `path` already. After an error the new file is removed.
void Merge(const Checkpoint& checkpoint, const std::string& path,
           const std::function<bool(const SavedTensor&)>& wanted);

}  // namespace strata
