// The data source "image_folder": image files in one folder per class.
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/data/files/folder.h"
#include "engine/data/files/image_file.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/sources.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

struct File {
  std::string path;
  int64_t label;
};

struct Folder {
  std::vector<std::string> classes;
  std::vector<File> files;
  std::vector<std::string> others;  ///< files that are not images
  int64_t deep = 0;                 ///< number of images below the folder of their class
};

/// The folders that have been read, by device and inode. Symbolic links may lead to one of them
/// again.
using Seen = std::set<std::pair<dev_t, ino_t>>;

bool IsImageName(const fs::path& path) {
  const std::string end = Lower(path.extension().string());
  return end == ".jpg" || end == ".jpeg" || end == ".png";
}

/// The entries of a folder except hidden ones.
FolderEntries ListOf(const fs::path& folder) {
  FolderEntries listed = ListFolder(folder);
  const auto is_hidden = [](const fs::path& path) {
    return path.filename().string().starts_with('.');
  };
  std::erase_if(listed.folders, is_hidden);
  std::erase_if(listed.files, is_hidden);
  return listed;
}

/// Adds the images of a folder, then those of its sub-folders at any depth. Each folder is read
/// once.
void AddImages(const fs::path& place, int64_t label, Folder& folder, Seen& seen) {
  struct stat status;
  if (::stat(place.c_str(), &status) != 0) return;
  if (!seen.emplace(status.st_dev, status.st_ino).second) return;
  const bool is_deep = seen.size() > 1;
  const FolderEntries listed = ListOf(place);
  for (const fs::path& file : listed.files) {
    if (IsImageName(file)) {
      folder.files.push_back({file.string(), label});
      if (is_deep) ++folder.deep;
    } else {
      folder.others.push_back(file.string());
    }
  }
  for (const fs::path& sub : listed.folders) AddImages(sub, label, folder, seen);
}

/// Lists a single image, or all images of a folder, without classes.
Folder ListUnlabelled(const std::string& path) {
  Folder folder;
  if (!fs::is_directory(path) && IsImageName(path)) {
    folder.files.push_back({path, 0});
  } else {
    Seen seen;
    AddImages(path, 0, folder, seen);
  }
  if (folder.files.empty()) {
    throw WorldError(Str(path, ": expected images (.jpg, .jpeg or .png), got none"));
  }
  return folder;
}

Folder List(const std::string& path) {
  Folder folder;
  const FolderEntries listed = ListOf(path);
  for (const fs::path& file : listed.files) folder.others.push_back(file.string());
  for (const fs::path& sub : listed.folders) {
    const size_t before = folder.files.size();
    Seen seen;
    AddImages(sub, static_cast<int64_t>(folder.classes.size()), folder, seen);
    if (folder.files.size() == before) {
      throw WorldError(Str(sub.string(), ": expected images (.jpg, .jpeg or .png) of the class \"",
                           sub.filename().string(), "\", got none"));
    }
    folder.classes.push_back(sub.filename().string());
  }
  if (folder.files.empty()) {
    throw WorldError(Str(path, ": expected a sub-folder of images for each class, got none"));
  }
  return folder;
}

class ImageFolder : public Dataset {
 public:
  ImageFolder(const std::string& path, int size, int channels, bool skips, bool has_targets)
      : path_(path),
        folder_(has_targets ? List(path) : ListUnlabelled(path)),
        size_(size),
        channels_(channels),
        skips_(skips),
        has_targets_(has_targets) {}

  int64_t size() const override { return static_cast<int64_t>(folder_.files.size()); }
  TensorSpec input() const override { return {{channels_, size_, size_}, DType::kFloat32}; }
  TensorSpec target() const override { return {{}, DType::kInt64}; }
  int64_t classes() const override { return static_cast<int64_t>(folder_.classes.size()); }
  std::vector<std::string> class_names() const override { return folder_.classes; }
  std::vector<std::string> notes() const override {
    std::vector<std::string> notes;
    if (!folder_.others.empty()) {
      notes.push_back(Str(Plural(static_cast<int64_t>(folder_.others.size()), "file"), " in ",
                          QuotedName(path_), " left out, as ", QuotedName(folder_.others[0]),
                          ": images are .jpg, .jpeg and .png",
                          has_targets_ ? " in a sub-folder for each class" : ""));
    }
    if (folder_.deep > 0 && has_targets_) {
      notes.push_back(Str(folder_.deep, " of ", Plural(size(), "image"), " in ", QuotedName(path_),
                          " lie deeper than the folder of their class"));
    }
    return notes;
  }
  std::string name_of(int64_t index) const override {
    const fs::path path = folder_.files[static_cast<size_t>(index)].path;
    return path == path_ ? path.filename().string() : path.lexically_relative(path_).string();
  }
  bool has_targets() const override { return has_targets_; }
  std::string description() const override {
    return Str("image_folder: ", FormatCount(size()), " images of ", size_, "x", size_, " in ",
               path_,
               has_targets_ ? Str(", ", Plural(classes(), "class"), ": ", ClassNames()) : "");
  }

  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    // Only decoding shows that a file is broken, so with skips_ a read of the target alone decodes
    // as well.
    const File& file = folder_.files[static_cast<size_t>(skips_ ? WholeFrom(sample.index, input)
                                                                : Decode(sample.index, input))];
    if (target) std::memcpy(target, &file.label, sizeof(file.label));
  }

 private:
  std::string ClassNames() const {
    constexpr size_t kMost = 10;
    const auto& names = folder_.classes;
    const std::vector<std::string> first(
        names.begin(), names.begin() + static_cast<ptrdiff_t>(std::min(kMost, names.size())));
    return Join(first, ", ") + (names.size() > kMost ? ", ..." : "");
  }

  int64_t Decode(int64_t index, std::byte* input) const {
    if (!input) return index;
    const std::string& path = folder_.files[static_cast<size_t>(index)].path;
    const MappedFile file(path, "an image");
    const Image image = DecodeImage(file.text(), channels_, size_, path);
    ResizeToPlanes(image, size_, size_, true, reinterpret_cast<float*>(input));
    return index;
  }

  /// The first undamaged image from `index` on, continuing at the beginning after the end.
  int64_t WholeFrom(int64_t index, std::byte* input) const {
    std::vector<float> scratch(input ? 0 : static_cast<size_t>(Dataset::input_bytes()) / 4);
    std::byte* place = input ? input : reinterpret_cast<std::byte*>(scratch.data());
    for (int64_t i = 0; i < size(); ++i) {
      const int64_t candidate = (index + i) % size();
      if (IsBroken(candidate)) continue;
      try {
        return Decode(candidate, place);
      } catch (const WorldError& error) {
        NoteBroken(candidate, error.what());
      }
    }
    throw WorldError(Str(path_, ": none of the ", size(), " images is whole"));
  }

  bool IsBroken(int64_t index) const {
    const std::lock_guard lock(mutex_);
    return broken_.contains(index);
  }

  void NoteBroken(int64_t index, const char* why) const {
    const std::lock_guard lock(mutex_);
    if (broken_.insert(index).second) STRATA_LOG(kWarning) << "skipped: " << why;
  }

  const std::string path_;
  const Folder folder_;
  const int size_;
  const int channels_;
  const bool skips_;
  const bool has_targets_;
  mutable std::mutex mutex_;
  mutable std::set<int64_t> broken_;
};

}  // namespace

std::unique_ptr<Dataset> OpenImageFolder(const DataSpec& spec, const DatasetContext& context) {
  const int64_t channels = spec.options["channels"].as_int();
  if (channels == 2) throw ConfigError("image_folder: channels is 1 (grey) or 3 (colour), got 2");
  return std::make_unique<ImageFolder>(
      ResolvePath(spec.options["path"].as_string(), context),
      static_cast<int>(spec.options["size"].as_int()), static_cast<int>(channels),
      spec.options["broken"] == Value("skip"), spec.options["targets"] != Value(false));
}

}  // namespace strata::data
