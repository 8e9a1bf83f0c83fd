// Checkpoint: a save that is read. It gives any box of any tensor to whoever asks, whatever grid
// made it, and gives no byte that is not the one that was saved.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors.h"

namespace strata {

class Checkpoint {
 public:
  /// `path`: a save (".../step-00000040"), a folder of saves (the one that `latest` names), or a
  /// safetensors file of anybody's: its tensors count as parameters, and have no digests. Reads
  /// what is about the tensors, not them. Throws WorldError: nothing there, damaged; see
  /// TroubleWithOffer().
  static std::unique_ptr<Checkpoint> Open(const std::string& path);

  /// Of the save itself.
  const std::string& path() const { return path_; }
  /// A plain file's has only files and tensors.
  const Manifest& manifest() const { return manifest_; }
  bool is_plain_file() const { return is_plain_file_; }

  /// Reads all bytes of the tensor and compares their digests. From any thread. Throws WorldError
  /// that names the tensor and its file.
  void Verify(const SavedTensor& tensor) const;
  /// The elements of `box`, row-major, without gaps. Verifies them as it reads: after an error `to`
  /// holds rubbish. From any thread. REQUIRES: the box lies within the tensor.
  void Read(const SavedTensor& tensor, const Slice& box, void* to) const;
  /// The whole tensor in pieces, from the first byte to the last.
  using Sink = std::function<void(const void* bytes, int64_t count)>;
  void ReadWhole(const SavedTensor& tensor, const Sink& sink) const;

 private:
  Checkpoint(std::string path, Manifest manifest, bool is_plain_file);
  /// Where the bytes of a slice are. Throws WorldError unless they are as many as they must be.
  struct Place {
    const SafetensorsFile& file;
    const StoredTensor& stored;
  };
  Place Find(const SavedTensor& tensor, const SavedSlice& saved) const;
  const SafetensorsFile& FileOf(const SavedTensor& tensor, const std::string& name) const;
  void ReadSlice(const SavedTensor& tensor, const SavedSlice& saved,
                 const std::function<void(const Slice& piece, const void* bytes)>& take) const;

  const std::string path_;
  const Manifest manifest_;
  const bool is_plain_file_;
  mutable std::mutex mutex_;
  mutable std::map<std::string, std::unique_ptr<SafetensorsFile>> files_;
};

/// Whether all of the save is there and undamaged: "" or the first trouble.
std::string TroubleWithSave(const std::string& save);

/// The error of a save that cannot be used, with the newest one beside it that can: its step, and
/// how to go on from it. Reads whole saves. `save` is the damaged one, or the folder of saves.
std::string WithOffer(const std::string& trouble, const std::string& save);

/// Writes the tensors for which `wanted` holds into one safetensors file, each whole, under their
/// own names. Throws WorldError: damage, a full disk, something that is at `path` already; then
/// nothing stays there.
void Merge(const Checkpoint& checkpoint, const std::string& path,
           const std::function<bool(const SavedTensor&)>& wanted);

}  // namespace strata
