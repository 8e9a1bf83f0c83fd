// SaveFolder: the folder that a training saves to. A save in it is either complete or ignored.
//
//   latest                       "step-00000040 DIGEST": the newest save, and its manifest's digest
//   .owner                       the process that saves here (save_owner.h)
//   step-00000020/  step-00000040/
//     manifest.json              the list of the save's contents (manifest.h)
//     rank-00000.safetensors     the tensors that rank 0 owned, ...
//   .tmp-step-60-4711/           a save that is being written, or whose writer was killed
//
// A save is written into a temporary folder. Then its files and the folder are synced, the folder
// is renamed, and `latest` is replaced by another rename. If the process is killed at any point,
// `latest` names the old save or the new one, and that save is complete.
//
// No name is used twice, so no save has to be removed before another one can be written. A training
// that resumes from an older save reaches steps that are already saved: its saves are named
// step-00000040.7, with their sequence number behind the point.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/save_owner.h"

namespace strata {

/// The name of a save: "step-00000040", or "step-00000040.7" if `again` is above 0.
std::string SaveName(int64_t step, int64_t again = 0);
/// The step in such a name; none for other names.
std::optional<int64_t> StepOfSave(std::string_view name);
/// "rank-00003.safetensors".
std::string RankFileName(int rank);

/// The content of the file `latest`.
struct LatestSave {
  std::string name;
  std::string manifest_digest;
};
/// Reads the file `latest`; none if it does not exist. Throws WorldError if it is damaged.
std::optional<LatestSave> ReadLatest(const std::string& folder);

/// The names of all saves in the folder, sorted by step; empty if there is no such folder.
/// Temporary folders are left out.
std::vector<std::string> ListSaves(const std::string& folder);

/// The folder of the best save (job.save.best) within a folder of saves.
std::string BestFolder(const std::string& folder);
/// An error text: "nothing was saved in runs", with the folder of its best save if there is one.
std::string NothingSavedIn(const std::string& folder);

/// Reads the manifest of the save at the path `save`. Throws WorldError if it is missing or
/// damaged, or has another digest than `expected_digest` ("" = any).
Manifest ReadManifest(const std::string& save, const std::string& expected_digest = "");

/// The writer of a folder of saves. Only one rank has it, the one that commits the saves of all
/// ranks.
class SaveFolder {
 public:
  /// Creates the folder if needed, becomes its owner, and removes temporary files of unfinished
  /// saves. `keep` is the number of saves that are kept; 0 = all. Throws ConfigError if another
  /// training saves to the folder, on any machine, and does not end within `patience` (SaveOwner).
  /// Throws WorldError if the folder cannot be written.
  SaveFolder(std::string path, int64_t keep,
             std::chrono::duration<double> patience = std::chrono::seconds(5));

  const std::string& path() const { return path_; }
  /// Creates the temporary folder of a new save and returns its path. If the folder of saves was
  /// removed meanwhile, it is created again, with a warning.
  std::string Begin(int64_t step);
  /// Completes a save: gives the manifest the next sequence number, writes it, syncs, renames the
  /// folder and replaces `latest`. Then removes the oldest saves beyond `keep`, with a warning if
  /// there are more than one; saves that cannot be read at present may be good, and are kept.
  /// Nothing else removes a save. Returns the save's path. Throws WorldError if a step fails;
  /// `latest` then names the previous save, or the new one if only the last sync failed, and that
  /// save is complete.
  std::string Commit(const std::string& temporary, Manifest manifest);
  /// Removes the temporary folder of a save that failed. Never throws.
  void Discard(const std::string& temporary) const;

 private:
  struct Known {
    std::string name;
    int64_t sequence;
  };

  void Open(std::chrono::duration<double> patience);
  std::string NewName(int64_t step, int64_t sequence) const;
  void ReplaceLatest(const std::string& name, const std::string& manifest_text) const;
  void Prune();
  std::string Inside(const std::string& name) const;

  const std::string path_;
  const int64_t keep_;
  std::unique_ptr<SaveOwner> owner_;
  std::vector<Known> saves_;  // sorted by sequence
};

}  // namespace strata
