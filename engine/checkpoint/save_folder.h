// SaveFolder: the folder that a training saves to. A save either counts or does not:
//
//   latest                       "step-00000040 DIGEST": the newest save, and its manifest's digest
//   step-00000020/  step-00000040/
//     manifest.json              what the save consists of (manifest.h)
//     rank-00000.safetensors     what rank 0 owned, ...
//   .tmp-step-60-4711/           a save that goes on, or that died
//
// A save is written into a temporary folder; all files and the folder are synced; it is renamed;
// then `latest` is replaced by another rename. Whoever is killed, at whatever point, leaves
// `latest` on the old save or on the new one, complete in either case.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/fd.h"
#include "engine/checkpoint/manifest.h"

namespace strata {

/// "step-00000040".
std::string SaveName(int64_t step);
/// The step of such a name.
std::optional<int64_t> StepOfSave(std::string_view name);
/// "rank-00003.safetensors".
std::string RankFileName(int rank);

/// What `latest` says.
struct LatestSave {
  std::string name;
  std::string manifest_digest;
};
/// None where the file is not there. Throws WorldError where it is damaged.
std::optional<LatestSave> ReadLatest(const std::string& folder);

/// The names of all saves in the folder, by step; none where there is no such folder. Those that
/// still have their temporary name do not count.
std::vector<std::string> ListSaves(const std::string& folder);

/// The manifest of a save, by the save's path. Throws WorldError: not there, damaged, or not the
/// one with `expected_digest` (unless that is "").
Manifest ReadManifest(const std::string& save, const std::string& expected_digest = "");

/// The one writer. On the rank that commits the saves of all.
class SaveFolder {
 public:
  /// Makes the folder where there is none, locks it and removes what dead saves have left. `keep`:
  /// how many saves stay, 0 = all. Throws ConfigError when another training saves here and does not
  /// end within `patience` (one that was killed holds the lock a moment longer), WorldError when
  /// the folder cannot be written.
  SaveFolder(std::string path, int64_t keep,
             std::chrono::duration<double> patience = std::chrono::seconds(5));

  const std::string& path() const { return path_; }
  /// Makes the temporary folder of a new save; its path.
  std::string Begin(int64_t step);
  /// Makes the save count: writes its manifest (and gives it the next sequence number), syncs,
  /// renames, and replaces `latest`. Then removes the oldest saves beyond `keep`. A save of the
  /// same step that is there already is replaced. Returns the save's path. Throws WorldError: the
  /// save does not count.
  std::string Commit(const std::string& temporary, Manifest manifest);
  /// Removes the temporary folder of a save that failed. Never throws.
  void Discard(const std::string& temporary) const;

 private:
  struct Known {
    std::string name;
    int64_t sequence;
  };

  void Lock(std::chrono::duration<double> patience);
  void ReplaceLatest(const std::string& name, const std::string& manifest_text) const;
  void Prune();
  std::string Inside(const std::string& name) const;

  const std::string path_;
  const int64_t keep_;
  Fd lock_;
  std::vector<Known> saves_;  // by sequence
};

}  // namespace strata
