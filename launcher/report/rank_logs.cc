// A file of output for each rank.
#include "launcher/report/rank_logs.h"

#include <fcntl.h>

#include <filesystem>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {

RankLogs::RankLogs(JobListener& next, std::string folder)
    : next_(next), folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw WorldError(Str("--log_dir=", folder_, ": ", error.message()));
}

void RankLogs::OnOutput(int rank, bool is_error, std::string_view line) {
  next_.OnOutput(rank, is_error, line);
  if (folder_.empty() || rank == kStarter) return;
  const std::string path = Str(folder_, "/rank_", rank, ".log");
  Fd& file = files_[rank];
  if (!file.is_open()) {
    file = Fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!file.is_open()) ThrowErrno(Str("cannot write to ", path));
  }
  WriteAll(file.get(), Str(line, "\n"), path);
}

}  // namespace strata::launcher
