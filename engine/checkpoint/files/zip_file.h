// ReadZip(): finds the entries of a zip archive whose bytes are stored uncompressed, as
// torch.save() writes them. It reads the directory, and decompresses nothing.
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
  int64_t bytes = 0;
};

/// The entries of the archive, in its order. The file is not trusted: throws WorldError that names
/// the file and the entry for a damaged directory, entries beyond the file, compressed or encrypted
/// ones, and more than a million of them.
std::vector<ZipEntry> ReadZip(const InputFile& file);

}  // namespace strata
