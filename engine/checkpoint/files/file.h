// Files for checkpoints. InputFile reads at any offset and notices if a file has become shorter.
// OutputFile writes new files and can sync them to the disk.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/fd.h"

namespace strata {

/// A file that is open for reading.
class InputFile {
 public:
  /// Throws WorldError if the file does not exist, cannot be read or is not a regular file: "cannot
  /// read a.csv (a table): No such file or directory". `expected` is the text in brackets.
  explicit InputFile(std::string path, std::string_view expected = "");
  const std::string& path() const { return path_; }
  int fd() const { return fd_.get(); }
  int64_t size() const { return size_; }
  /// Reads `count` bytes from `offset` on. May be called from any thread. REQUIRES: they lie within
  /// size(). Throws WorldError if the disk fails or the file has become shorter.
  void ReadAt(int64_t offset, void* to, int64_t count) const;

 private:
  const std::string path_;
  Fd fd_;
  int64_t size_ = 0;
};

/// The content of a small file. Throws WorldError as InputFile does, and for more than `limit`
/// bytes.
std::string ReadSmallFile(const std::string& path, int64_t limit);

/// A new file, open for writing. If Sync() is not called, the destructor removes the file, so that
/// a full disk does not leave a part of it. Errors: WorldError with the path and the system's
/// reason, such as a full disk.
class OutputFile {
 public:
  /// Creates the file. Throws also if something exists at `path`.
  explicit OutputFile(std::string path);
  /// Removes the file if it was not synced.
  ~OutputFile();
  OutputFile(const OutputFile&) = delete;
  OutputFile& operator=(const OutputFile&) = delete;
  const std::string& path() const { return path_; }
  void Write(const void* bytes, int64_t count);
  /// Returns when all bytes are on the disk.
  void Sync();

 private:
  const std::string path_;
  Fd fd_;
  bool is_synced_ = false;
};

/// Creates a new file with this text and syncs it to the disk. Errors as OutputFile.
void WriteSyncedFile(const std::string& path, std::string_view text);

/// Syncs a folder, so that the names of its files survive a power failure. Throws WorldError.
void SyncFolder(const std::string& path);

/// Returns a temporary path in the same folder as `path`, for writing a file or folder that shall
/// appear at `path` only when it is complete. Its name begins with ".tmp-", so that it is never
/// taken for a complete one. Throws WorldError if something is already at `path`.
std::string PlaceBeside(const std::string& path);
/// Renames a complete and synced file or folder from the temporary path to `path`, and syncs the
/// folder. Throws WorldError.
void MoveIntoPlace(const std::string& beside, const std::string& path);

/// Creates a folder and its missing parents, and syncs the parent of each new one. Throws
/// WorldError.
void MakeFolder(const std::string& path);

}  // namespace strata
