// Wraps system calls and turns their errors into text. Reads give their offset, so several threads
// may share a file.
#include "engine/checkpoint/files/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {

namespace fs = std::filesystem;

/// O_NONBLOCK is needed since opening a FIFO would otherwise wait for its writer.
InputFile::InputFile(std::string path, std::string_view expected)
    : path_(std::move(path)), fd_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  const auto trouble = [&] {
    return Str("cannot read ", path_, expected.empty() ? "" : Str(" (", expected, ")"));
  };
  struct stat status;
  if (!fd_.is_open() || ::fstat(fd_.get(), &status) != 0) ThrowErrno(trouble());
  if (S_ISDIR(status.st_mode)) throw WorldError(trouble() + ": it is a folder");
  if (!S_ISREG(status.st_mode)) throw WorldError(trouble() + ": it is no regular file");
  size_ = status.st_size;
}

void InputFile::ReadAt(int64_t offset, void* to, int64_t count) const {
  STRATA_CHECK(offset >= 0 && count >= 0 && offset <= size_ && count <= size_ - offset)
      << path_ << ": " << offset << " + " << count << " of " << size_;
  auto* place = static_cast<char*>(to);
  while (count > 0) {
    const ssize_t got = ::pread(fd_.get(), place, static_cast<size_t>(count), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) ThrowErrno(Str("cannot read ", path_));
    if (got == 0) throw WorldError(Str(path_, " became shorter while it was read"));
    place += got;
    offset += got;
    count -= got;
  }
}

std::string ReadSmallFile(const std::string& path, int64_t limit) {
  const InputFile file(path);
  if (file.size() > limit) {
    throw WorldError(Str(path, " has ", FormatBytes(static_cast<double>(file.size())),
                         ", more than such a file can have"));
  }
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.ReadAt(0, text.data(), file.size());
  return text;
}

OutputFile::OutputFile(std::string path)
    : path_(std::move(path)),
      fd_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) {
  if (!fd_.is_open()) ThrowErrno(Str("cannot write ", path_));
}

OutputFile::~OutputFile() {
  if (!is_synced_) ::unlink(path_.c_str());
}

void OutputFile::Write(const void* bytes, int64_t count) {
  WriteAll(fd_.get(), {static_cast<const char*>(bytes), static_cast<size_t>(count)}, path_);
}

void OutputFile::Sync() {
  if (::fsync(fd_.get()) != 0) ThrowErrno(Str("cannot write ", path_));
  is_synced_ = true;
}

void WriteSyncedFile(const std::string& path, std::string_view text) {
  OutputFile file(path);
  file.Write(text.data(), static_cast<int64_t>(text.size()));
  file.Sync();
}

void SyncFolder(const std::string& path) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.is_open() || ::fsync(fd.get()) != 0) ThrowErrno(Str("cannot write the folder ", path));
}

void MakeFolder(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error)) return;
  const std::string parent = fs::path(path).parent_path().string();
  if (!parent.empty()) MakeFolder(parent);
  if (::mkdir(path.c_str(), 0777) == 0) return SyncFolder(parent.empty() ? "." : parent);
  if (errno != EEXIST || !fs::is_directory(path)) ThrowErrno(Str("cannot make the folder ", path));
}

namespace {

/// The path without the slash at a folder's end.
fs::path Named(const fs::path& given) { return given.has_filename() ? given : given.parent_path(); }

}  // namespace

std::string PlaceBeside(const std::string& given) {
  const fs::path path = Named(given);
  std::error_code error;
  if (fs::exists(fs::symlink_status(path, error))) {
    throw WorldError(Str("cannot write ", path.string(), ": File exists"));
  }
  return (path.parent_path() / Str(".tmp-", path.filename().string(), "-", ::getpid())).string();
}

void MoveIntoPlace(const std::string& beside, const std::string& given) {
  const fs::path path = Named(given);
  if (::rename(beside.c_str(), path.c_str()) != 0) ThrowErrno("cannot write " + path.string());
  SyncFolder(path.has_parent_path() ? path.parent_path().string() : ".");
}

}  // namespace strata
