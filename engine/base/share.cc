#include "engine/base/share.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

namespace strata {
namespace {

namespace fs = std::filesystem;

fs::path Program() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error);
}

std::vector<fs::path> Folders() {
  if (const char* share = std::getenv("STRATA_SHARE"); share && *share) return {share};
  const fs::path program = Program();
  return {program.parent_path().parent_path() / "share",
          fs::path(program.string() + ".runfiles") / "strata"};
}

}  // namespace

std::string SharedPath(const std::string& name) {
  for (const fs::path& folder : Folders()) {
    std::error_code error;
    const fs::path path = folder / name;
    if (fs::exists(path, error)) return path.string();
  }
  return "";
}

std::vector<std::string> SharedModels() {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator file(SharedPath("models"), error), end; !error && file != end;
       file.increment(error)) {
    if (file->path().extension() == ".lua") names.push_back(file->path().stem().string());
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> LibraryPlaces(const char* variable, const std::string& in_workspace) {
  if (const char* path = std::getenv(variable); path && *path) return {path};
  const fs::path program = Program(), library = in_workspace;
  std::vector<fs::path> paths = {program.parent_path() / library.filename(),
                                 program.parent_path().parent_path() / library};
  if (const char* runfiles = std::getenv("RUNFILES_DIR")) {
    paths.push_back(fs::path(runfiles) / "strata" / library);
  }
  paths.push_back(fs::path(program.string() + ".runfiles") / "strata" / library);
  return {paths.begin(), paths.end()};
}

std::string TorchLibrary(const std::string& name) {
  const char* torch = std::getenv("LIBTORCH");
  if (!torch || !*torch) return "";
  std::error_code error;
  const fs::path inner = fs::path(torch) / "torch/lib" / name;
  return (fs::exists(inner, error) ? inner : fs::path(torch) / "lib" / name).string();
}

}  // namespace strata
