// The names in a folder of saves, and the order of syncs and renames that makes a save valid
// (save_folder.h).
#include "engine/checkpoint/save_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/file.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step-";
constexpr size_t kDigits = 8;
constexpr const char* kLatest = "latest";
constexpr const char* kManifestFile = "manifest.json";
constexpr int64_t kLongestManifest = int64_t{256} << 20;
// Temporary names: a save that is being written, the next `latest`, a save that is being removed.
constexpr const char* kWritten = ".tmp-step-";
constexpr const char* kNextLatest = ".tmp-latest-";
constexpr const char* kRemoved = ".tmp-removed-";
constexpr int64_t kLongestLatest = 200;

/// The names in a folder, sorted; empty when it cannot be read.
std::vector<std::string> NamesIn(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

void RemoveAll(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) STRATA_LOG(kWarning) << "cannot remove " << path << ": " << error.message();
}

bool Exists(const std::string& path) {
  struct stat status;
  if (::lstat(path.c_str(), &status) == 0) return true;
  if (errno != ENOENT) ThrowErrno(Str("cannot look for ", path));
  return false;
}

/// Renames a folder. If the name `to` exists already, it is left as it is, and WorldError is
/// thrown.
void PutInPlace(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return;
  // Not every file system knows RENAME_NOREPLACE.
  const bool is_known = errno != EINVAL && errno != ENOSYS;
  if (!is_known && !Exists(to) && ::rename(from.c_str(), to.c_str()) == 0) return;
  ThrowErrno(Str("cannot make ", to));
}

bool IsTemporary(const std::string& name) {
  return std::ranges::any_of(std::array{kWritten, kNextLatest, kRemoved, SaveOwner::kTemporary},
                             [&](const char* begin) { return name.starts_with(begin); });
}

/// True for a folder that has the name of a save, but no manifest, so it is not a save.
bool IsForeign(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::exists(Str(path, "/", kManifestFile), error);
}

/// The sequence number of a save; -1 for a damaged save, so that it is removed first. None for a
/// save that cannot be read: an error of the disk does not mean that the save is damaged.
std::optional<int64_t> SequenceOf(const std::string& save) {
  const std::string path = Str(save, "/", kManifestFile);
  std::string text;
  try {
    text = ReadSmallFile(path, kLongestManifest);
  } catch (const Error& error) {
    STRATA_LOG(kWarning) << error.what() << "; the save is left alone";
    return std::nullopt;
  }
  try {
    return ParseManifest(text, path).sequence;
  } catch (const Error&) {
    return -1;
  }
}

/// The number that the whole text is; none for another text.
std::optional<int64_t> NumberOf(std::string_view digits) {
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), number);
  return error == std::errc() && end == digits.end() ? std::optional(number) : std::nullopt;
}

/// The number behind the point of a save's name; 0 if there is none.
int64_t AgainOf(std::string_view name) {
  const size_t point = name.find('.');
  return point == name.npos ? 0 : NumberOf(name.substr(point + 1)).value_or(-1);
}

}  // namespace

std::string SaveName(int64_t step, int64_t again) {
  std::string digits = std::to_string(step);
  digits.insert(0, kDigits - std::min(kDigits, digits.size()), '0');
  return again > 0 ? Str(kPrefix, digits, ".", again) : Str(kPrefix, digits);
}

std::optional<int64_t> StepOfSave(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view number = name.substr(kPrefix.size());
  const std::optional<int64_t> step = NumberOf(number.substr(0, number.find('.')));
  const bool fits = step && *step >= 0 && SaveName(*step, AgainOf(name)) == name;
  return fits ? step : std::nullopt;
}

std::string RankFileName(int rank) { return Printf("rank-%05d.safetensors", rank); }

std::optional<LatestSave> ReadLatest(const std::string& folder) {
  const std::string path = Str(folder, "/", kLatest);
  if (std::error_code error; !fs::exists(fs::symlink_status(path, error))) return std::nullopt;
  const std::string text = ReadSmallFile(path, kLongestLatest);
  const size_t space = text.find(' ');
  const bool fits = space != std::string::npos && text.size() == space + kDigestDigits + 2 &&
                    text.back() == '\n' && StepOfSave(text.substr(0, space));
  if (!fits) throw WorldError(Str(path, " is damaged: it names no save"));
  return LatestSave{text.substr(0, space), text.substr(space + 1, kDigestDigits)};
}

std::vector<std::string> ListSaves(const std::string& folder) {
  std::vector<std::string> saves;
  for (std::string& name : NamesIn(folder)) {
    if (StepOfSave(name)) saves.push_back(std::move(name));
  }
  std::ranges::sort(saves, {}, [](const std::string& name) {
    return std::pair(*StepOfSave(name), AgainOf(name));
  });
  return saves;
}

std::string BestFolder(const std::string& folder) { return folder + "/best"; }

std::string NothingSavedIn(const std::string& folder) {
  const std::string best = BestFolder(folder);
  return Str("nothing was saved in ", folder,
             ListSaves(best).empty() ? "" : Str(" but its best save, which is in ", best));
}

Manifest ReadManifest(const std::string& save, const std::string& expected_digest) {
  const std::string path = Str(save, "/", kManifestFile);
  const std::string text = ReadSmallFile(path, kLongestManifest);
  Manifest manifest = ParseManifest(text, path);
  if (!expected_digest.empty() && ManifestDigest(text) != expected_digest) {
    throw WorldError(Str(path, ": the manifest is not the one that was saved last"));
  }
  return manifest;
}

SaveFolder::SaveFolder(std::string path, int64_t keep, std::chrono::duration<double> patience)
    : path_(std::move(path)), keep_(keep) {
  Open(patience);
}

void SaveFolder::Open(std::chrono::duration<double> patience) {
  MakeFolder(path_);
  owner_ = std::make_unique<SaveOwner>(path_, patience);
  saves_.clear();
  for (const std::string& name : NamesIn(path_)) {
    if (IsTemporary(name)) RemoveAll(Inside(name));
  }
  for (const std::string& name : ListSaves(path_)) {
    if (IsForeign(Inside(name))) continue;
    if (const auto sequence = SequenceOf(Inside(name))) saves_.push_back({name, *sequence});
  }
  std::ranges::stable_sort(saves_, {}, &Known::sequence);
}

std::string SaveFolder::Begin(int64_t step) {
  if (owner_->IsFolderGone()) {
    STRATA_LOG(kWarning) << "the folder " << path_ << " is gone with its saves; it is made again";
    Open({});
  }
  std::string folder = Inside(Str(kWritten, step, "-", ::getpid()));
  RemoveAll(folder);
  if (::mkdir(folder.c_str(), 0777) != 0) ThrowErrno(Str("cannot make the folder ", folder));
  return folder;
}

/// Chooses the name of a new save. Once a training has gone back to an earlier step, its names have
/// a number, so that no name of a removed save is used again.
std::string SaveFolder::NewName(int64_t step, int64_t sequence) const {
  const std::string name = SaveName(step);
  if (IsForeign(Inside(name))) throw WorldError(Str(Inside(name), " is in the way, and no save"));
  const bool goes_back = std::ranges::any_of(saves_, [&](const Known& save) {
    return *StepOfSave(save.name) >= step || AgainOf(save.name) > 0;
  });
  if (!goes_back && !Exists(Inside(name))) return name;
  int64_t again = std::max<int64_t>(sequence, 1);
  while (Exists(Inside(SaveName(step, again)))) ++again;
  return SaveName(step, again);
}

std::string SaveFolder::Commit(const std::string& temporary, Manifest manifest) {
  owner_->Check();
  manifest.sequence = saves_.empty() ? 0 : saves_.back().sequence + 1;
  const std::string name = NewName(manifest.training.step, manifest.sequence);
  const std::string text = ManifestText(manifest);
  WriteSyncedFile(Str(temporary, "/", kManifestFile), text);
  SyncFolder(temporary);
  PutInPlace(temporary, Inside(name));
  saves_.push_back({name, manifest.sequence});
  SyncFolder(path_);
  ReplaceLatest(name, text);
  SyncFolder(path_);
  Prune();
  return Inside(name);
}

void SaveFolder::Discard(const std::string& temporary) const { RemoveAll(temporary); }

void SaveFolder::ReplaceLatest(const std::string& name, const std::string& manifest_text) const {
  const std::string temporary = Inside(Str(kNextLatest, ::getpid()));
  RemoveAll(temporary);
  WriteSyncedFile(temporary, Str(name, " ", ManifestDigest(manifest_text), "\n"));
  const std::string latest = Inside(kLatest);
  if (::rename(temporary.c_str(), latest.c_str()) != 0) ThrowErrno(Str("cannot replace ", latest));
}

void SaveFolder::Prune() {
  if (keep_ == 0) return;
  const int64_t beyond = static_cast<int64_t>(saves_.size()) - keep_;
  // One save beyond `keep` is the normal case, as the new save was just added. There are more if
  // more were kept before, which the user may not expect to lose, or if the process was killed
  // between a commit and this call.
  if (beyond > 1) {
    STRATA_LOG(kWarning) << beyond << " saves are removed from " << path_ << ", all but the newest "
                         << keep_ << " (save.keep)";
  }
  while (static_cast<int64_t>(saves_.size()) > keep_) {
    // The save is renamed before it is removed, so that a half-removed save does not have the name
    // of a save.
    const std::string gone = Inside(Str(kRemoved, ::getpid()));
    RemoveAll(gone);
    if (::rename(Inside(saves_.front().name).c_str(), gone.c_str()) == 0) RemoveAll(gone);
    saves_.erase(saves_.begin());
  }
}

std::string SaveFolder::Inside(const std::string& name) const { return Str(path_, "/", name); }

}  // namespace strata
