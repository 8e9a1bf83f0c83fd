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

  /// Tells the system not to read ahead around the pages that are used.
  void ExpectRandomReads() const;

  const std::string& path() const { return path_; }
  std::span<const std::byte> bytes() const { return {bytes_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(bytes_), size_}; }

 private:
  const std::string path_;
  const std::byte* bytes_ = nullptr;
  size_t size_ = 0;
};

}  // namespace strata::data
