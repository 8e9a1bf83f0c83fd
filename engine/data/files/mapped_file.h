// MappedFile: a file mapped into memory.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace strata::data {

/// A regular file that is mapped into memory as long as the object lives. Pages are read when they
/// are used, and the system may drop them again. The file must not become shorter meanwhile.
class MappedFile {
 public:
  /// Throws WorldError as InputFile does.
  MappedFile(const std::string& path, std::string_view expected);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Takes the pages before `offset` out of this process's memory. They can be used again: the
  /// system then maps them anew. For a reader that goes through a large file once.
  void Release(size_t offset) const;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {bytes_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_), size_}; }

 private:
  const std::string path_;
  const std::byte* bytes_ = nullptr;
  size_t size_ = 0;
};

/// Tells the system not to read ahead around the pages of these bytes, since samples are read from
/// them in random order. They may lie in a mapped file or in memory.
void ExpectRandomReads(std::span<const std::byte> bytes);
/// The same for bytes that may not fit into memory. Smaller ones are soon in memory as a whole, and
/// sooner if the system reads ahead.
void ExpectRandomReadsIfLarge(std::span<const std::byte> bytes);
/// Tells the system to read the pages of these bytes now, without waiting for them. Does nothing
/// for so few that a page fault reads them as well.
void ReadSoon(std::span<const std::byte> bytes);

}  // namespace strata::data
