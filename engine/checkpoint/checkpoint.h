// Checkpoint: reads a save. Any rank can read any box of any tensor, whatever grid wrote the save.
// All bytes that are read are verified by their digests.
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

/// True if the path, without a slash at its end, is the path of a save: it has the name of a save,
/// or it is a folder with a manifest, such as a copy of a save under another name, that holds
/// neither published weights nor `latest` (which makes it a folder of saves).
bool IsSave(const std::string& path);

class Checkpoint {
 public:
  /// `path` is a save (IsSave()), a folder of saves (the save that `latest` names is opened), or
  /// published weights: a safetensors file, what torch.save() wrote, or a folder with one such file
  /// or with an index (shards.h). Published weights have parameters, and the moments of a merged
  /// save, but no digests. Reads the descriptions of the tensors, not their bytes. Throws
  /// WorldError if there is nothing to open or it is damaged; WithNewestWholeSave() adds an
  /// undamaged save to such an error.
  static std::unique_ptr<Checkpoint> Open(const std::string& path);

  /// The path of the save, or of the published weights.
  const std::string& path() const { return path_; }
  /// For published weights only `files` and `tensors` are filled in.
  const Manifest& manifest() const { return manifest_; }
  /// True for published weights. A training can start with them, but not resume from them.
  bool is_plain_file() const { return is_plain_file_; }

  /// Reads all bytes of the tensor and compares their digests. If there is no digest, only checks
  /// that the file has the bytes. May be called from any thread. Throws WorldError that names the
  /// tensor and its file.
  void Verify(const SavedTensor& tensor) const;
  /// Writes the elements of `box` to `to`, row-major, without gaps. Digests are verified while
  /// reading, so the content of `to` must not be used after an error. May be called from any
  /// thread. Throws as Verify() does. REQUIRES: the box lies within the tensor.
  void Read(const SavedTensor& tensor, const Slice& box, void* to) const;
  /// The same without memory for the box: calls sink(first, count, bytes) for runs of elements of
  /// at most 1 MiB, of which the first is element `first` of the box. Runs may come in any order.
  using RunSink = std::function<void(int64_t first, int64_t count, const void* bytes)>;
  void ReadRuns(const SavedTensor& tensor, const Slice& box, const RunSink& sink) const;
  /// Passes the whole tensor to `sink` in pieces, from the first byte to the last. Throws as
  /// Verify() does, possibly after `sink` got pieces.
  using Sink = std::function<void(const void* bytes, int64_t count)>;
  void ReadWhole(const SavedTensor& tensor, const Sink& sink) const;

 private:
  Checkpoint(std::string path, Manifest manifest, std::string folder, bool is_plain_file);
  /// The position of a slice's bytes. Find() throws WorldError if the file does not have the slice
  /// with the expected dtype and size.
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
  const std::string folder_;  // the folder that the files are in
  const bool is_plain_file_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<TensorFile>> files_;
};

/// Reads the whole save. Returns "" if it is complete and undamaged, otherwise the text of the
/// first error.
std::string TroubleWithSave(const std::string& save);

/// Returns the error `trouble`, followed by the newest undamaged save in the same folder and the
/// option that resumes from it. Reads whole saves. `save` is the damaged save, or the folder of
/// saves.
std::string WithNewestWholeSave(const std::string& trouble, const std::string& save);

/// Writes the tensors for which `wanted` is true into a new safetensors file at `path`, each whole,
/// under its own name. Throws WorldError if the save is damaged, the disk is full or something is
/// already at `path`. After an error the new file is removed.
void Merge(const Checkpoint& checkpoint, const std::string& path,
           const std::function<bool(const SavedTensor&)>& wanted);

}  // namespace strata
