// RankLogs: writes the output of each rank to a file of its own as well (--log_dir).
#pragma once

#include <map>
#include <set>
#include <string>

#include "launcher/process/job_process.h"
#include "launcher/process/pipes.h"

namespace strata::launcher {

class RankLogs : public JobListener {
 public:
  /// Passes everything on to `next`. Makes `folder` if needed; "" = no files. Throws WorldError if
  /// that fails. `is_alone`: no other launcher writes log files for the same job there.
  RankLogs(JobListener& next, std::string folder, bool is_alone = true);

  /// When a training starts that does not continue another one (JobMessage()), removes the log
  /// files of an earlier training's ranks.
  void OnMessage(int rank, const Value& message) override;
  /// Appends the line to FOLDER/rank_N.log, which is emptied at first for such a training. Lines of
  /// both streams are in the order of arrival. Throws WorldError if the file cannot be written.
  void OnOutput(int rank, bool is_error, std::string_view line) override;
  void StopFiles() override;

 private:
  Fd Open(const std::string& path, bool clears);
  void RemoveOthers() const;

  JobListener& next_;
  std::string folder_;
  const bool is_alone_;
  bool goes_on_ = false, has_started_ = false;
  std::set<int> begun_;      // ranks that already have a file of this job
  std::map<int, Fd> files_;  // open files; not all, if the limit of descriptors is low
};

}  // namespace strata::launcher
