// Looks into the folder first, because a rank may die before it reports what it has saved.
#include "launcher/report/new_saves.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/save_folder.h"
#include "engine/job/job.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

/// The newest save in the folder, as "step-00000040 DIGEST"; the name alone if there is no file
/// `latest`; "" if there is no save.
std::string NewestIn(const std::string& folder) {
  try {
    if (const auto latest = ReadLatest(folder)) {
      return Str(latest->name, " ", latest->manifest_digest);
    }
  } catch (const Error&) {
    return "";  // whoever reads the save reports the error
  }
  const std::vector<std::string> saves = ListSaves(folder);
  return saves.empty() ? "" : saves.back();
}

/// The parent folder of a path, in a form that can be compared.
fs::path FolderOf(const std::string& path) { return fs::path(path).parent_path(); }

}  // namespace

void NewSaves::Place::Begin(const std::string& path) {
  folder = path;
  before = NewestIn(path);
}

std::string NewSaves::Place::Newest() const {
  if (folder.empty()) return "";
  const std::string now = NewestIn(folder);
  std::error_code error;
  const bool is_gone = is_here && !fs::exists(told, error);
  if (now.empty() || now == before) return is_gone ? "" : told;
  return Str(folder, "/", now.substr(0, now.find(' ')));
}

void NewSaves::Begin(const std::string& folder) {
  if (folder.empty()) return;
  last_.Begin(folder);
  best_.Begin(BestFolder(folder));
}

void NewSaves::Add(const std::string& path) {
  std::error_code error;
  for (Place* place : {&last_, &best_}) {
    if (!can_be() || FolderOf(path) != FolderOf(place->folder + "/.")) continue;
    place->told = path;
    place->is_here = fs::exists(path, error);
  }
}

std::string NewSaves::Resume() const {
  return last_.Newest().empty() ? best_.Newest() : kLatestSave;
}

}  // namespace strata::launcher
