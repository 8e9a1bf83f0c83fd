// The table of a job's keys. Each key is declared here once: its field (type, default, help, and so
// its flag), the member of Job that holds it, and whether it may change between a save and the
// training that resumes from it.
#pragma once

#include <functional>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/job/job.h"
#include "engine/job/job_keys.h"

namespace strata {

struct JobKey {
  Field field;
  /// True if the key determines where or how long a job trains, not what it learns.
  bool free_on_resume;
  /// Reads the key into the job. Empty if BuildJob() reads it together with other keys.
  std::function<void(const JobKeys& keys, Job& job)> read;
  /// Adds the key to the job's canonical form, by which ranks and saves compare jobs.
  std::function<void(const Job& job, Value& value)> show;
};

const std::vector<JobKey>& JobTable();

}  // namespace strata
