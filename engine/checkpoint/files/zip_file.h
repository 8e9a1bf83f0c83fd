// ReadZip(): finds the entries of a zip archive, such as torch.save() and numpy.savez() write. It
// reads the directory, and decompresses nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/files/file.h"

namespace strata {

/// The name of an entry, and the position of its bytes in the file.
struct ZipEntry {
  std::string name;
  int64_t offset = 0;
  int64_t packed = 0;  ///< bytes in the file
  int64_t bytes = 0;   ///< once decompressed
  int method = 0;      ///< 0: not compressed, then packed == bytes; 8: deflate
};

/// The entries of the archive, in its order. The file is not trusted: throws WorldError that names
/// the file and the entry for a damaged directory, entries beyond the file, encrypted ones, and
/// more than a million of them.
std::vector<ZipEntry> ReadZip(const InputFile& file);

}  // namespace strata
