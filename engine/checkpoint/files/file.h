// Files for checkpoints. InputFile reads at any offset and notices when a file is shorter than it
// was. OutputFile writes new files and can sync them to the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/fd.h"

namespace strata {

/// A file that is open for reading.
class InputFile {
 public:
  /// Throws WorldError when the file does not exist, cannot be read or is no regular file: "cannot
  /// read a.csv (a table): No such file or directory". The bracket says what was `expected`.
  explicit InputFile(std::string path, std::string_view expected = "");
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  int64_t size() const { return size_; }
  /// Reads `count` bytes from `offset` on. From any thread. REQUIRES: they lie within size().
  /// Throws WorldError when the disk fails or the file has become shorter.
  void ReadAt(int64_t offset, void* to, int64_t count) const;

 private:
  const std::string path_;
  Fd fd_;
  int64_t size_ = 0;
};

/// The content of a small file. Throws WorldError as InputFile does, and for more than `limit`
/// bytes.
std::string ReadSmallFile(const std::string& path, int64_t limit);

/// A new file, open for writing. Without Sync() it ends with this object, so that a full disk
/// leaves no part of a file. Errors: WorldError with the path and the system's reason, such as a
/// full disk.
class OutputFile {
 public:
  /// Makes the file. Throws also when something exists at `path`.
  explicit OutputFile(std::string path);
  /// Removes a file that was not synced.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  const std::string& path() const { return path_; }
  void Write(const void* bytes, int64_t count);
  /// Returns when everything is on the disk.
  void Sync();

 private:
  const std::string path_;
  Fd fd_;
  bool is_synced_ = false;
};

/// Makes a new file with this text and syncs it to the disk. Errors as OutputFile.
void WriteSyncedFile(const std::string& path, std::string_view text);

/// Syncs a folder, so that the names of its files survive a power failure. Throws WorldError.
void SyncFolder(const std::string& path);

/// Where to write what shall be at `path` all at once: beside it, under a name that nothing takes
/// for whole. Throws WorldError when something is at `path`.
std::string PlaceBeside(const std::string& path);
/// Gives what was written and synced there its name. Throws WorldError.
void MoveIntoPlace(const std::string& beside, const std::string& path);

/// Makes a folder and its missing parents, and syncs what each new one lies in. Throws WorldError.
void MakeFolder(const std::string& path);

}  // namespace strata
