// Files as checkpoints need them: read at any place without trust in their size, written so that
// they are on the disk when that is said.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/base/fd.h"

namespace strata {

/// A file that is read.
class InputFile {
 public:
  /// Throws WorldError when it is not there, not readable or no regular file.
  explicit InputFile(std::string path);
  const std::string& path() const { return path_; }
  int64_t size() const { return size_; }
  /// From any thread. REQUIRES: within size(). Throws WorldError when the disk fails, or when the
  /// file has become shorter.
  void ReadAt(int64_t offset, void* to, int64_t count) const;

 private:
  const std::string path_;
  Fd fd_;
  int64_t size_ = 0;
};

/// The whole of a small file. Throws WorldError as InputFile, and above `limit` bytes.
std::string ReadSmallFile(const std::string& path, int64_t limit);

/// A new file. Errors: WorldError with the path and the system's reason (a full disk).
class OutputFile {
 public:
  /// Also throws when something of that name is there.
  explicit OutputFile(std::string path);
  const std::string& path() const { return path_; }
  void Write(const void* bytes, int64_t count);
  /// Returns when everything is on the disk.
  void Sync();

 private:
  const std::string path_;
  Fd fd_;
};

/// A new file with this text, on the disk on return.
void WriteSyncedFile(const std::string& path, std::string_view text);

/// Returns when the names in the folder are on the disk.
void SyncFolder(const std::string& path);

}  // namespace strata
