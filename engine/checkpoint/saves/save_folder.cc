// The names in a folder of saves, and the order of syncs and renames that makes a save count.
#include "engine/checkpoint/saves/save_folder.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
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
constexpr size_t kDigestDigits = 32;

Fd OpenFolder(const std::string& path) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open()) ThrowErrno(Str("cannot open the folder ", path));
  return fd;
}

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

/// Renames `from` to `to`. If `to` exists, the two are exchanged in one step, so `from` then holds
/// the old `to`.
void PutInPlace(const std::string& from, const std::string& to) {
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) return;
  // Either `to` does not exist, or the file system cannot exchange. Then the old `to` is removed
  // first; `latest` names an older save meanwhile, or is replaced next.
  if (errno != ENOENT) RemoveAll(to);
  if (::rename(from.c_str(), to.c_str()) != 0) ThrowErrno(Str("cannot make ", to));
}

bool IsTemporary(const std::string& name) {
  return name.starts_with(kWritten) || name.starts_with(kNextLatest) || name.starts_with(kRemoved);
}

/// True for a folder with the name of a save that is none: it has no manifest.
bool IsForeign(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error) && !fs::exists(Str(path, "/", kManifestFile), error);
}

/// The sequence number of a save; -1 for a damaged one, so that it is removed first.
int64_t SequenceOf(const std::string& save) {
  try {
    return ReadManifest(save).sequence;
  } catch (const Error&) {
    return -1;
  }
}

}  // namespace

std::string SaveName(int64_t step) {
  std::string digits = std::to_string(step);
  digits.insert(0, kDigits - std::min(kDigits, digits.size()), '0');
  return Str(kPrefix, digits);
}

std::optional<int64_t> StepOfSave(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  const std::string_view digits = name.substr(kPrefix.size());
  int64_t step = 0;
  const auto [end, error] = std::from_chars(digits.begin(), digits.end(), step);
  const bool fits = error == std::errc() && end == digits.end() && SaveName(step) == name;
  return fits && step >= 0 ? std::optional(step) : std::nullopt;
}

std::string RankFileName(int rank) {
  std::array<char, 64> name;
  std::snprintf(name.data(), name.size(), "rank-%05d.safetensors", rank);
  return name.data();
}

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
  std::ranges::sort(saves, {}, [](const std::string& name) { return *StepOfSave(name); });
  return saves;
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
  MakeFolder(path_);
  lock_ = OpenFolder(path_);
  Lock(patience);
  for (const std::string& name : NamesIn(path_)) {
    if (IsTemporary(name)) RemoveAll(Inside(name));
  }
  for (const std::string& name : ListSaves(path_)) {
    if (!IsForeign(Inside(name))) saves_.push_back({name, SequenceOf(Inside(name))});
  }
  std::ranges::stable_sort(saves_, {}, &Known::sequence);
}

void SaveFolder::Lock(std::chrono::duration<double> patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EINTR) continue;
    if (errno != EWOULDBLOCK) ThrowErrno(Str("cannot lock the folder ", path_));
    if (std::chrono::steady_clock::now() > end) {
      throw ConfigError(
          Str("another training saves to ", path_, "; choose another folder: --save.dir"));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // flock() has no time-out
  }
}

std::string SaveFolder::Begin(int64_t step) {
  std::string folder = Inside(Str(kWritten, step, "-", ::getpid()));
  RemoveAll(folder);
  if (::mkdir(folder.c_str(), 0777) != 0) ThrowErrno(Str("cannot make the folder ", folder));
  return folder;
}

std::string SaveFolder::Commit(const std::string& temporary, Manifest manifest) {
  const std::string name = SaveName(manifest.training.step);
  if (IsForeign(Inside(name))) throw WorldError(Str(Inside(name), " is in the way, and no save"));
  manifest.sequence = saves_.empty() ? 0 : saves_.back().sequence + 1;
  const std::string text = ManifestText(manifest);
  WriteSyncedFile(Str(temporary, "/", kManifestFile), text);
  SyncFolder(temporary);
  PutInPlace(temporary, Inside(name));
  SyncFolder(path_);
  ReplaceLatest(name, text);
  SyncFolder(path_);
  RemoveAll(temporary);  // now holds the replaced save of the same step, if there was one
  std::erase_if(saves_, [&](const Known& save) { return save.name == name; });
  saves_.push_back({name, manifest.sequence});
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
  while (static_cast<int64_t>(saves_.size()) > keep_) {
    // The save is renamed first, so that a half-removed one does not have the name of a save.
    const std::string gone = Inside(Str(kRemoved, ::getpid()));
    RemoveAll(gone);
    if (::rename(Inside(saves_.front().name).c_str(), gone.c_str()) == 0) RemoveAll(gone);
    saves_.erase(saves_.begin());
  }
}

std::string SaveFolder::Inside(const std::string& name) const { return Str(path_, "/", name); }

}  // namespace strata
