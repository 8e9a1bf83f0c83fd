#include "engine/data/files/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <filesystem>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"

namespace strata::data {

void RefuseFile(const std::string& path, std::string_view expected) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  const char* const why = !std::filesystem::exists(status)            ? "there is no such file"
                          : std::filesystem::is_directory(status)     ? "it is a folder"
                          : !std::filesystem::is_regular_file(status) ? "it is no file"
                                                                      : "it may not be read";
  throw WorldError(Str("cannot read ", path, " (", expected, "): ", why));
}

MappedFile::MappedFile(const std::string& path, std::string_view expected) : path_(path) {
  struct stat info {};
  // A pipe would wait for its writer: the kind is looked at before the file is opened.
  const bool is_file = ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
  const Fd fd(is_file ? ::open(path.c_str(), O_RDONLY | O_CLOEXEC) : -1);
  if (!fd.is_open() || ::fstat(fd.get(), &info) != 0) {
    RefuseFile(path, expected);
  }
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
