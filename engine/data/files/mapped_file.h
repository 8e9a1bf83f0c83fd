// MappedFile: a file's bytes without reading them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace strata::data {

/// A regular file that is mapped into memory for as long as the object lives. Pages come when they
/// are read, and the system may take them back. Nobody may make the file shorter meanwhile.
class MappedFile {
 public:
  /// Throws WorldError as InputFile does.
  MappedFile(const std::string& path, std::string_view expected);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Tells the system that pages around those that are read will not be needed.
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
