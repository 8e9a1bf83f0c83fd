// Reads a user's schedule from a CSV file or a Lua function. Private to the package.
#pragma once

#include <string>
#include <vector>

#include "engine/job/job.h"
#include "engine/layers/script.h"
#include "engine/schedule/program.h"

namespace strata {

/// The numbers of ranks and micro-batches of a program.
struct Extent {
  int ranks = 1;
  int micro_batches = 1;
};

/// True if the job's schedule is a user's own and not a named one.
bool IsUsers(const Job& job);
/// How error messages name the place of a user's schedule.
std::string PlaceOf(const Job& job);
/// The user's program, parsed but not checked.
schedule::Program UsersProgram(const Job& job, const Extent& extent, Script* script);
/// The ranks of the stages in the user's program; they mean something only if the program is
/// correct.
std::vector<int> UsersStageRanks(const Job& job, const Extent& extent, Script* script);

}  // namespace strata
