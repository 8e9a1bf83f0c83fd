#include "engine/data/files/folder.h"

#include <algorithm>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::data {

FolderEntries ListFolder(const std::filesystem::path& folder) {
  FolderEntries entries;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    std::error_code unknown;
    (entry.is_directory(unknown) ? entries.folders : entries.files).push_back(entry.path());
  }
  if (error) {
    throw WorldError(Str("cannot read the folder ", folder.string(), ": ", error.message()));
  }
  std::ranges::sort(entries.folders);
  std::ranges::sort(entries.files);
  return entries;
}

}  // namespace strata::data
