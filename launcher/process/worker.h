// RemoteNode and RunWorker(): the two ends of a job on another machine. The launcher starts `strata
// worker` there by ssh. They exchange messages (channel.h) over the worker's standard input
// and output:
//
//   launcher -> worker   the job, once; "abort" {rank, why}; "stop", "save now", "note" {rank};
//                        "flight";
//                        at the end of input the worker ends all processes
//   worker -> launcher   "hello" {time, store_port}, then what its node reports (node.h);
//                        "flight" {ranks}, when asked, and at the end when a rank has failed or
//                        was killed
//
// The job is data on the worker's standard input. The command line is fixed, so a remote shell has
// nothing to interpret.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "launcher/process/job_process.h"
#include "launcher/process/node.h"

namespace strata::launcher {

/// The type of the messages with flight records.
inline constexpr const char* kFlight = "flight";
/// Seconds that machines have to send flight records, and that a worker waits at the end for its
/// launcher to read.
inline constexpr double kTellSeconds = 1;

/// The ranks on another machine, and how to start them.
struct RemoteHost {
  std::string name;
  std::vector<std::string> command;  ///< starts the worker: {"ssh", "host1", "strata", "worker"}
  Value job;                         ///< the worker's job; Begin() fills in its "store_port"
};

/// The processes behind a worker. Start() starts the command, Begin() sends the job. The command's
/// standard error becomes output of JobListener::kStarter.
class RemoteNode : public Node {
 public:
  /// Sends the job. `store_port` is the port of the store. For rank 0's node it may be 0: then the
  /// worker chooses a port.
  virtual void Begin(int store_port) = 0;
};

/// Makes the node of a host. REQUIRES: SIGPIPE is ignored. If the command ends early, its exit code
/// is reported. `on_store` gets the port at which rank 0's worker opened the store. `in_child` as
/// in MakeLocalNode().
std::unique_ptr<RemoteNode> MakeRemoteNode(RemoteHost host, NodeListener& listener,
                                           std::function<void()> in_child,
                                           std::function<void(int port)> on_store);

/// The worker's end: reads the job from standard input, runs it, and reports to standard output.
/// The job's own processes write to standard error instead. `make_program` makes the JobProgram of
/// the job; if rank 0 is here, it also binds the store's socket and sets `store_port`. Returns the
/// worker's exit code.
using MakeProgram = std::function<std::unique_ptr<JobProgram>(const Value& job, int& store_port)>;
int RunWorker(const MakeProgram& make_program);

}  // namespace strata::launcher
