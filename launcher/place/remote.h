// Remote: turns a job over the machines of a host file into one job for each machine's `strata
// worker`, and reads such a job in the worker.
#pragma once

#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/comm/meeting/discovery.h"
#include "launcher/place/placement.h"
#include "launcher/process/worker.h"

namespace strata::launcher {

/// The flags --ssh and --remote_program.
FieldTable RemoteFields();

/// The workers for `placement.hosts`. Each is started by `SSH HOST PROGRAM worker`, or on this
/// machine by `PROGRAM worker`. `flags` are the command's own; `arguments` are all arguments after
/// the command. The script must have the same path on every host, and so must the program unless
/// --remote_program names another path. Throws ConfigError if a shell could misread the program's
/// path.
std::vector<RemoteHost> RemoteHosts(const Placement& placement,
                                    const std::vector<std::string>& arguments, const Value& flags,
                                    const Environment& environment);

/// The variables that are sent to the other machines: those of NCCL, Gloo, UCX, OpenMP, MKL,
/// LibTorch and Strata, by prefix. No others are sent.
Environment Forwarded(const Environment& environment);

/// In the worker: changes to the job's folder, sets its environment variables, and returns its
/// placement. If rank 0 is here, binds the store's socket and sets `store_port`. Throws ConfigError
/// for a job of another version or with missing entries, and if the folder does not exist.
Placement ApplyRemoteJob(const Value& job, int& store_port);
/// The arguments after `strata train`.
std::vector<std::string> ArgumentsOf(const Value& job);

}  // namespace strata::launcher
