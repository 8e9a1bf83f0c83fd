#include "engine/data/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::data {

Fd OpenFile(const std::string& path, std::string_view expected) {
  const std::string trouble = Str("cannot read ", path, " (", expected, ")");
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) ThrowErrno(trouble);
  if (S_ISDIR(info.st_mode)) throw WorldError(trouble + ": it is a folder");
  if (!S_ISREG(info.st_mode)) throw WorldError(trouble + ": it is no file");
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) ThrowErrno(trouble);
  return fd;
}

MappedFile::MappedFile(const std::string& path, std::string_view expected) : path_(path) {
  const Fd fd = OpenFile(path, expected);
  struct stat info {};
  if (::fstat(fd.get(), &info) != 0) ThrowErrno(Str("cannot read ", path));
  size_ = static_cast<size_t>(info.st_size);
  if (size_ == 0) return;
  // Private: who writes to a page gets a page of its own, and the file stays as it is.
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd.get(), 0);
  if (memory == MAP_FAILED) ThrowErrno(Str("cannot map ", path));
  bytes_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() {
  if (bytes_) ::munmap(const_cast<std::byte*>(bytes_), size_);
}

void MappedFile::ExpectRandomReads() const {
  if (bytes_) ::madvise(const_cast<std::byte*>(bytes_), size_, MADV_RANDOM);
}

}  // namespace strata::data
