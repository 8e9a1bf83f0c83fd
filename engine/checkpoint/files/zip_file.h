// ZipFile: finds the entries of a zip archive whose bytes lie in it as they are, as torch.save()
// writes them. Nothing is unpacked.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/checkpoint/files/file.h"

namespace strata {

/// An entry: where its bytes are in the file.
struct ZipEntry {
  std::string name;
  int64_t offset = 0;
  int64_t bytes = 0;
};

/// The entries of the archive, in its order. Trusts nothing: throws WorldError that names file and
/// entry for a damaged directory, entries beyond the file, compressed or encrypted ones, and more
/// than a million of them.
std::vector<ZipEntry> ReadZip(const InputFile& file);

}  // namespace strata
