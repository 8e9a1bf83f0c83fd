// ListFolder(): what lies in a folder. Internal to engine/data.
#pragma once

#include <filesystem>
#include <vector>

namespace strata::data {

/// The entries of a folder, each list sorted. Hidden entries are among them, and so are links that
/// lead nowhere, as files.
struct FolderEntries {
  std::vector<std::filesystem::path> folders, files;
};

/// Throws WorldError if the folder cannot be read.
FolderEntries ListFolder(const std::filesystem::path& folder);

}  // namespace strata::data
