// Work that this process leaves to children of it.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace strata::lua {

/// What `rank` of the children writes for its parent.
using ChildsWork = std::function<std::string(int rank)>;

/// Runs the work in as many children, of which the first answers, within `seconds` if that is not
/// 0. Where there is no answer, all children are gone behind it, and it throws WorldError. `what`:
/// for errors, "the process that measures". `fork`: the system's.
std::string InChildren(int count, const std::string& what, int seconds, const ChildsWork& work,
                       pid_t (*fork)() = ::fork);

}  // namespace strata::lua
