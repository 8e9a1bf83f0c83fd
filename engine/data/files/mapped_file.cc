#include "engine/data/files/mapped_file.h"

#include <sys/mman.h>

#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"

namespace strata::data {

MappedFile::MappedFile(const std::string& path, std::string_view expected) : path_(path) {
  const InputFile file(path, expected);
  size_ = static_cast<size_t>(file.size());
  if (size_ == 0) return;
  // The mapping is private: a write to a page copies the page, and the file does not change.
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file.fd(), 0);
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
