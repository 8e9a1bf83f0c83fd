#include "engine/data/files/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"

namespace strata::data {
namespace {

const auto kPage = static_cast<size_t>(::sysconf(_SC_PAGESIZE));

/// Errors are ignored, since advice changes no results.
void Advise(std::span<const std::byte> bytes, int advice) {
  if (bytes.empty()) return;
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) & ~(kPage - 1);
  const auto end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  ::madvise(reinterpret_cast<void*>(begin), end - begin, advice);
}

}  // namespace

MappedFile::MappedFile(const std::string& path, std::string_view expected) : path_(path) {
  const InputFile file(path, expected);
  size_ = static_cast<size_t>(file.size());
  if (size_ == 0) return;
  // The mapping is private: a write to a page copies the page, and the file does not change. The
  // system need not reserve memory for such copies, so files may be larger than the memory.
  constexpr int kFlags = MAP_PRIVATE | MAP_NORESERVE;
  void* memory = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, kFlags, file.fd(), 0);
  if (memory == MAP_FAILED) ThrowErrno(Str("cannot map ", path));
  bytes_ = static_cast<const std::byte*>(memory);
}

MappedFile::~MappedFile() {
  if (bytes_) ::munmap(const_cast<std::byte*>(bytes_), size_);
}

void MappedFile::Release(size_t offset) const {
  const size_t whole_pages = offset & ~(kPage - 1);
  if (whole_pages > 0) ::madvise(const_cast<std::byte*>(bytes_), whole_pages, MADV_DONTNEED);
}

void ExpectRandomReads(std::span<const std::byte> bytes) { Advise(bytes, MADV_RANDOM); }

void ExpectRandomReadsIfLarge(std::span<const std::byte> bytes) {
  constexpr size_t kLarge = size_t{1} << 30;
  if (bytes.size() > kLarge) ExpectRandomReads(bytes);
}

void ReadSoon(std::span<const std::byte> bytes) {
  if (bytes.size() >= 2 * kPage) Advise(bytes, MADV_WILLNEED);
}

}  // namespace strata::data
