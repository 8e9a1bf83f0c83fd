// InChildren(): runs work in forked child processes.
#pragma once

#include <sys/types.h>
#include <unistd.h>

#include <functional>
#include <string>

namespace strata::lua {

/// The work of one child; its result is the answer that child 0 sends to the parent.
using ChildsWork = std::function<std::string(int rank)>;

/// Runs `work` in `count` children and returns the answer of child 0. It waits for at most
/// `seconds`, or without a limit if that is 0. If there is no answer, it kills all children and
/// throws WorldError. All children have ended when it returns or throws. `what` is the children's
/// role in errors, "the process that measures". `fork` is the system's fork(); tests replace it.
std::string InChildren(int count, const std::string& what, int seconds, const ChildsWork& work,
                       pid_t (*fork)() = ::fork);

}  // namespace strata::lua
