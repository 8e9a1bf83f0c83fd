// RankLogs: writes the output of each rank to a file of its own as well (--log_dir).
#pragma once

#include <map>
#include <set>
#include <string>

#include "launcher/process/nodes/job_process.h"
#include "launcher/process/streams/pipes.h"

namespace strata::launcher {

class RankLogs : public JobListener {
 public:
  /// Passes everything on to `next`. Makes `folder` if needed; "" = no files. Throws WorldError
  /// when that fails.
  RankLogs(JobListener& next, std::string folder);

  void OnMessage(int rank, const Value& message) override;
  /// Appends the line to FOLDER/rank_N.log. What an earlier training has left there is gone, unless
  /// this one goes on with it (JobMessage()). Lines of both streams are in the order in which they
  /// come. Throws WorldError when the file cannot be written.
  void OnOutput(int rank, bool is_error, std::string_view line) override;

 private:
  Fd Open(const std::string& path, bool clears);

  JobListener& next_;
  std::string folder_;
  bool goes_on_ = false;
  std::set<int> begun_;      // ranks that have a file of this job
  std::map<int, Fd> files_;  // those that are open: not all, where the limit of descriptors is low
};

}  // namespace strata::launcher
