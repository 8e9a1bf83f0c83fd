// Finds the slices of a tensor in the files of a save, reads them in pieces of 1 MiB, and computes
// their digests on the way. A box is assembled from the runs of elements that it shares with each
// saved slice (ForEachRun()). Reading any box reads the whole slices that the tensor has, since a
// digest covers a slice.
#include "engine/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/digest.h"
#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/checkpoint/shards.h"

namespace strata {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kPiece = int64_t{1} << 20;

bool IsFolder(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool IsThere(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

/// The path without slashes at its end, so that its last part is the save's name.
std::string Plain(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string FolderOf(const std::string& save) {
  const std::string parent = fs::path(save).parent_path().string();
  return parent.empty() ? "." : parent;
}

std::string TensorText(const SavedTensor& tensor) {
  return Str("tensor ", QuotedName(tensor.name));
}

/// The newest undamaged save in the folder, other than `damaged`; "" if there is none.
std::string NewestGood(const std::string& folder, const std::string& damaged) {
  std::vector<std::pair<int64_t, std::string>> saves;
  for (const std::string& name : ListSaves(folder)) {
    const std::string save = Str(folder, "/", name);
    if (name == damaged) continue;
    try {
      saves.emplace_back(ReadManifest(save).sequence, save);
    } catch (const WorldError&) {
      continue;  // this one is damaged too
    }
  }
  std::ranges::sort(saves, std::greater());
  for (const auto& [sequence, save] : saves) {
    if (TroubleWithSave(save).empty()) return save;
  }
  return "";
}

}  // namespace

bool IsSave(const std::string& path) {
  if (StepOfSave(fs::path(path).filename().string())) return true;
  return IsThere(path + "/manifest.json") && !IsThere(path + "/latest") && !PublishedIn(path);
}

Checkpoint::Checkpoint(std::string path, Manifest manifest, std::string folder, bool is_plain_file)
    : path_(std::move(path)),
      manifest_(std::move(manifest)),
      folder_(std::move(folder)),
      is_plain_file_(is_plain_file) {}

std::unique_ptr<Checkpoint> Checkpoint::Open(const std::string& given) {
  const std::string path = Plain(given);
  const auto save = [](const std::string& save, const std::string& digest) {
    return std::unique_ptr<Checkpoint>(
        new Checkpoint(save, ReadManifest(save, digest), save, /*is_plain_file=*/false));
  };
  if (IsFolder(path)) {
    if (IsSave(path)) return save(path, "");
    const std::optional<LatestSave> latest = ReadLatest(path);
    if (latest) return save(Str(path, "/", latest->name), latest->manifest_digest);
  }
  const auto published = IsFolder(path) ? PublishedIn(path) : path;
  if (!published) {
    throw WorldError(Str(NothingSavedIn(path), ", and it has no model.safetensors, ",
                         "pytorch_model.bin or index of shards"));
  }
  const std::string folder = fs::path(*published).parent_path().string();
  return std::unique_ptr<Checkpoint>(
      new Checkpoint(path, ManifestOfFiles(*published), folder, /*is_plain_file=*/true));
}

const TensorFile& Checkpoint::FileOf(const SavedTensor& tensor, const std::string& name) const {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<TensorFile>& file = files_[name];
  if (file) return *file;
  const std::string path = (fs::path(folder_) / name).string();
  const SavedFile* expected = manifest_.FindFile(name);
  STRATA_CHECK(expected) << name;
  try {
    auto opened = TensorFile::Open(path);
    if (opened->header_digest() != expected->header_digest) {
      throw WorldError(Str(path, " is damaged: its header is not the one that was saved"));
    }
    file = std::move(opened);
  } catch (const WorldError& error) {
    throw WorldError(Str(TensorText(tensor), ": ", error.what()));
  }
  return *file;
}

Checkpoint::Place Checkpoint::Find(const SavedTensor& tensor, const SavedSlice& saved) const {
  const TensorFile& file = FileOf(tensor, saved.file);
  const std::string name = StoredSliceName(tensor, saved.slice);
  const StoredTensor* stored = file.Find(name);
  const int64_t bytes = saved.slice.count * DTypeSize(tensor.spec.dtype);
  if (!stored || stored->dtype != StoredName(tensor.spec.dtype) || stored->bytes != bytes) {
    throw WorldError(Str(TensorText(tensor), ": ", file.path(), " does not hold ", QuotedName(name),
                         " as it was saved"));
  }
  return {file, *stored};
}

/// Reads a slice, passes its bytes to `take` in pieces, and compares the digest at the end.
void Checkpoint::ReadSlice(
    const SavedTensor& tensor, const SavedSlice& saved,
    const std::function<void(const Slice& piece, const void* bytes)>& take) const {
  const auto [file, stored] = Find(tensor, saved);
  const int64_t item = DTypeSize(tensor.spec.dtype);
  Hasher hasher;
  std::vector<char> bytes(static_cast<size_t>(std::min(kPiece, stored.bytes)));
  for (int64_t done = 0; done < stored.bytes; done += kPiece) {
    const int64_t count = std::min(kPiece, stored.bytes - done);
    file.Read(stored, done, bytes.data(), count);
    hasher.Add(bytes.data(), static_cast<size_t>(count));
    Slice piece = saved.slice;
    piece.begin += done / item;
    piece.count = count / item;
    take(piece, bytes.data());
  }
  if (!saved.digest.empty() && hasher.Digest() != saved.digest) {
    throw WorldError(Str(TensorText(tensor), " is damaged: ", file.path(),
                         " holds other bytes than", " were saved (digest ", hasher.Digest(),
                         ", expected ", saved.digest, ")"));
  }
}

void Checkpoint::Verify(const SavedTensor& tensor) const {
  for (const SavedSlice& saved : tensor.slices) {
    Find(tensor, saved);
    // Without a digest any bytes would be accepted, so there is no need to read them.
    if (saved.digest.empty()) continue;
    ReadSlice(tensor, saved, [](const Slice&, const void*) {});
  }
}

void Checkpoint::Read(const SavedTensor& tensor, const Slice& box, void* to) const {
  const int64_t item = DTypeSize(tensor.spec.dtype);
  ReadRuns(tensor, box, [&](int64_t first, int64_t count, const void* bytes) {
    std::memcpy(static_cast<char*>(to) + first * item, bytes, static_cast<size_t>(count * item));
  });
}

void Checkpoint::ReadRuns(const SavedTensor& tensor, const Slice& box, const RunSink& sink) const {
  const int64_t item = DTypeSize(tensor.spec.dtype);
  for (const SavedSlice& saved : tensor.slices) {
    ReadSlice(tensor, saved, [&](const Slice& piece, const void* bytes) {
      ForEachRun(piece, box, [&](int64_t i, int64_t j, int64_t n) {
        sink(j, n, static_cast<const char*>(bytes) + i * item);
      });
    });
  }
}

void Checkpoint::ReadWhole(const SavedTensor& tensor, const Sink& sink) const {
  if (tensor.slices.size() == 1 && tensor.slices[0].slice.is_whole(tensor.spec.shape)) {
    const int64_t item = DTypeSize(tensor.spec.dtype);
    ReadSlice(tensor, tensor.slices[0],
              [&](const Slice& piece, const void* bytes) { sink(bytes, piece.count * item); });
    return;
  }
  // Find() checks that the files really hold the bytes before memory is allocated for them.
  for (const SavedSlice& saved : tensor.slices) Find(tensor, saved);
  std::vector<char> whole(static_cast<size_t>(tensor.spec.bytes()));
  Read(tensor, Slice::Whole(tensor.spec.shape), whole.data());
  sink(whole.data(), tensor.spec.bytes());
}

std::string TroubleWithSave(const std::string& save) {
  try {
    const auto checkpoint = Checkpoint::Open(save);
    for (const SavedTensor& tensor : checkpoint->manifest().tensors) checkpoint->Verify(tensor);
    return "";
  } catch (const WorldError& error) {
    return error.what();
  }
}

std::string WithNewestWholeSave(const std::string& trouble, const std::string& given) {
  const std::string save = Plain(given);
  const bool names_save = IsSave(save);
  const std::string folder = names_save ? FolderOf(save) : save;
  const std::string damaged = names_save ? fs::path(save).filename().string() : "";
  const std::string good = NewestGood(folder, damaged);
  if (good.empty()) return Str(trouble, "\nthere is no other save in ", folder, " that is whole");
  return Str(trouble, "\nthe newest whole save is of step ",
             *StepOfSave(fs::path(good).filename().string()),
             "; to go on from it: --resume=", good);
}

void Merge(const Checkpoint& checkpoint, const std::string& path,
           const std::function<bool(const SavedTensor&)>& wanted) {
  for (const ForeignTensor& tensor : checkpoint.manifest().foreign) {
    throw WorldError(Str(checkpoint.path(), ": ", TroubleWith(tensor)));
  }
  std::vector<TensorDeclaration> declarations;
  for (const SavedTensor& tensor : checkpoint.manifest().tensors) {
    if (!wanted(tensor)) continue;
    declarations.push_back({tensor.name, StoredName(tensor.spec.dtype), tensor.spec.shape});
  }
  SafetensorsWriter writer(path, declarations, {{"format", "pt"}});
  for (const StoredTensor& stored : writer.tensors()) {
    checkpoint.ReadWhole(*checkpoint.manifest().Find(stored.name),
                         [&](const void* bytes, int64_t count) { writer.Write(bytes, count); });
  }
  writer.Finish();
}

}  // namespace strata
