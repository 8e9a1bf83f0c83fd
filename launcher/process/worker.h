// The two ends of a job on another machine: the launcher starts `strata worker` there, by ssh, and
// speaks with it over its standard input and output, lines of JSON (json_lines.h):
//
//   launcher -> worker   the job, once; "abort" {rank, why}; "stop" {rank};
//                        the end of input: end everything
//   worker -> launcher   "hello" {time, store_port}, then what its node tells (node.h)
//
// The job reaches the worker as data on its standard input; the command line is fixed, so that no
// remote shell has anything to interpret.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "launcher/process/job_program.h"
#include "launcher/process/node.h"

namespace strata::launcher {

/// Ranks on another machine.
struct RemoteHost {
  std::string name;
  std::vector<std::string> command;  ///< starts the worker: {"ssh", "host1", "strata", "worker"}
  Value job;                         ///< what the worker gets; its "store_port" is filled in
};

/// The processes behind a worker. Start() starts the command; the job is sent by Begin(). Standard
/// error of the command becomes output of JobListener::kStarter.
class RemoteNode : public Node {
 public:
  /// `store_port`: of the store, where it is known; 0 for rank 0's node, which finds one.
  virtual void Begin(int store_port) = 0;
};
/// `on_store` is told the port at which rank 0's node listens.
std::unique_ptr<RemoteNode> MakeRemoteNode(RemoteHost host, NodeListener& listener,
                                           std::function<void()> in_child,
                                           std::function<void(int port)> on_store);

/// The worker's side. `make_program` gets the job and makes what runs here; it binds the store's
/// socket for rank 0 and returns its port in `store_port`. Reads standard input, writes to standard
/// output, which the processes of the program do not see (theirs is standard error). Returns the
/// worker's exit code.
using MakeProgram = std::function<std::unique_ptr<JobProgram>(const Value& job, int& store_port)>;
int RunWorker(const MakeProgram& make_program);

}  // namespace strata::launcher
