// Remote: a job over the machines of a host file, as what each machine's `strata worker` gets.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/comm/discovery.h"
#include "launcher/placement.h"
#include "launcher/process/worker.h"

namespace strata::launcher {

/// "--ssh", "--remote_program".
FieldTable RemoteFields();

/// The workers of `placement.hosts`, each started by `SSH HOST PROGRAM worker`, on this machine by
/// PROGRAM itself. `flags` are the command's own, `arguments` the whole command line behind it. The
/// script must be on every host under the same path; so must the program, unless --remote_program
/// names another. Throws ConfigError for a program's path that a shell could misread.
std::vector<RemoteHost> RemoteHosts(const Placement& placement,
                                    const std::vector<std::string>& arguments, const Value& flags,
                                    const Environment& environment);

/// Variables that go to the other machines: those of NCCL, Gloo, UCX, OpenMP, MKL, LibTorch and
/// Strata, by prefix. Nothing else leaves this one.
Environment Forwarded(const Environment& environment);

/// The worker's side: goes to the job's folder, takes its environment, and gives its placement; for
/// rank 0 the store's socket is bound, and `store_port` is its port. Throws ConfigError for a job
/// of another version or without a part, and where the folder is not there.
Placement TakeRemoteJob(const Value& job, int& store_port);
/// The command line behind `strata train`.
std::vector<std::string> ArgumentsOf(const Value& job);

}  // namespace strata::launcher
