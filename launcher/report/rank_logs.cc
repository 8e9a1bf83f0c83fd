// A file of output for each rank.
#include "launcher/report/rank_logs.h"

#include <fcntl.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/report/train_report.h"

namespace strata::launcher {

RankLogs::RankLogs(JobListener& next, std::string folder)
    : next_(next), folder_(std::move(folder)) {
  if (folder_.empty()) return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error) throw WorldError(Str("--log_dir=", folder_, ": ", error.message()));
}

void RankLogs::OnMessage(int rank, const Value& message) {
  next_.OnMessage(rank, message);
  if (message["type"] == Value(kJobMessage)) goes_on_ |= message["goes_on"].as_bool();
}

void RankLogs::OnOutput(int rank, bool is_error, std::string_view line) {
  next_.OnOutput(rank, is_error, line);
  if (folder_.empty() || rank == kStarter) return;
  const std::string path = Str(folder_, "/rank_", rank, ".log");
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
    // Some descriptors must be left for those who meet: of the files any may be opened again.
    if (errno != EMFILE || files_.empty()) ThrowErrno(Str("cannot write to ", path));
    files_.erase(files_.begin());
  }
}

}  // namespace strata::launcher
