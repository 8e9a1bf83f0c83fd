// RankLogs: what each rank writes, also in a file of its own (--log_dir).
#pragma once

#include <map>
#include <string>

#include "launcher/process/fd.h"
#include "launcher/process/job_program.h"

namespace strata::launcher {

class RankLogs : public JobListener {
 public:
  /// Everything goes on to `next`. `folder` is made where it is not there; "" = no files. Throws
  /// WorldError.
  RankLogs(JobListener& next, std::string folder);

  void OnMessage(int rank, const Value& message) override { next_.OnMessage(rank, message); }
  /// Lines of both streams, in the order in which they come, in FOLDER/rank_N.log. Throws
  /// WorldError when it cannot be written.
  void OnOutput(int rank, bool is_error, std::string_view line) override;

 private:
  JobListener& next_;
  std::string folder_;
  std::map<int, Fd> files_;
};

}  // namespace strata::launcher
