// Writes the output of each rank to a file.
#include "launcher/report/rank_logs.h"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {
namespace {

constexpr std::string_view kBegin = "rank_", kEnd = ".log";

std::string NameOf(int rank) { return Str(kBegin, rank, kEnd); }

bool IsNameOfLog(std::string_view name) {
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return false;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(kEnd.size());
  return !name.empty() && std::ranges::all_of(name, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

RankLogs::RankLogs(JobListener& next, std::string folder, bool is_alone)
    : next_(next), folder_(std::move(folder)), is_alone_(is_alone) {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw WorldError(Str("--log_dir=", folder_, ": ", error.message()));
}

void RankLogs::OnMessage(int rank, const Value& message) {
  next_.OnMessage(rank, message);
  if (message["type"] == Value(kJobMessage)) goes_on_ |= message["goes_on"].as_bool();
  if (message["type"] != Value(kStartMessage) || std::exchange(has_started_, true)) return;
  if (is_alone_ && !goes_on_) RemoveOthers();
}

/// Removes log files of earlier trainings. Files of this training's ranks stay, and its other ranks
/// may still begin theirs.
void RankLogs::RemoveOthers() const {
  if (folder_.empty()) return;
  std::set<std::string> own;
  for (const int rank : begun_) own.insert(NameOf(rank));
  std::vector<std::filesystem::path> others;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder_, error)) {
    const std::string name = entry.path().filename().string();
    if (IsNameOfLog(name) && !own.contains(name)) others.push_back(entry.path());
  }
  for (const auto& path : others) std::filesystem::remove(path, error);
}

void RankLogs::StopFiles() {
  next_.StopFiles();
  folder_.clear();
  files_.clear();
}

void RankLogs::OnOutput(int rank, bool is_error, std::string_view line) {
  next_.OnOutput(rank, is_error, line);
  if (folder_.empty() || rank == kStarter) return;
  const std::string path = Str(folder_, "/", NameOf(rank));
  if (!files_.contains(rank)) {
    const bool is_new = begun_.insert(rank).second;
    files_[rank] = Open(path, is_new && !goes_on_);
  }
  WriteAll(files_[rank].get(), Str(line, "\n"), path);
}

Fd RankLogs::Open(const std::string& path, bool clears) {
  const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (clears ? O_TRUNC : 0);
  while (true) {
    Fd file(::open(path.c_str(), flags, 0666));
    if (file.is_open()) return file;
    // Some descriptors must be left for connections. Files can be closed, because each can be
    // opened again.
    if (errno != EMFILE || files_.empty()) ThrowErrno(Str("cannot write to ", path));
    files_.erase(files_.begin());
  }
}

}  // namespace strata::launcher
