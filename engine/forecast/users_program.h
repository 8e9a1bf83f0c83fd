// A user's schedule: a CSV file or a Lua function. Private to the package.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/schedule/program.h"

namespace strata {

/// How many ranks and micro-batches a program is for.
struct Extent {
  int ranks = 1;
  int micro_batches = 1;
};

/// Whether the job's schedule has no name of ours.
bool IsUsers(const Job& job);
/// What errors call a user's schedule.
std::string PlaceOf(const Job& job);
/// The user's program, parsed and no more.
schedule::Program UsersProgram(const Job& job, const Extent& extent, Script* script);
/// The map of the user's program, which must be right for it to mean anything.
std::vector<int> UsersStageRanks(const Job& job, const Extent& extent, Script* script);

}  // namespace strata
