// Node: the processes of a job on one machine, as the supervisor sees them. There are two kinds:
// the starter and the ranks on this machine (local_node.cc), and those behind a `strata worker` on
// another machine (remote_node.cc).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "launcher/process/job_process.h"
#include "launcher/process/waiting.h"

namespace strata::launcher {

/// Receives what a node reports. The calls come from Source::ready and from Node::Reap().
class NodeListener {
 public:
  virtual ~NodeListener() = default;
  /// `role` is the rank's entry in RankRange::roles.
  virtual void OnRankStarted(int rank, int world_size, const std::string& role) = 0;
  /// `status` is the rank's waitpid() status.
  virtual void OnRankExited(int rank, int status) = 0;
  /// A message of a rank or of the starter (JobListener::kStarter). rank_process.h lists the types.
  virtual void OnMessage(int from, const Value& body) = 0;
  /// A line that a rank, or the starter, wrote to its standard output or standard error.
  virtual void OnOutput(int rank, bool is_error, std::string_view line) = 0;
  /// Flight records of ranks of the node, as FlightOf() returns them, including ranks that are
  /// threads.
  virtual void OnFlight(const Value& ranks) = 0;
  /// The node itself was lost, and not because it was killed. `exit_code` and `cause` are for the
  /// job.
  virtual void OnLost(int exit_code, const std::string& cause) = 0;
};

/// The processes of a job on one machine.
class Node {
 public:
  virtual ~Node() = default;
  /// Starts the processes.
  virtual void Start() = 0;
  /// The descriptors to wait for now. They change when ranks start and end.
  virtual std::vector<Source> Sources() = 0;
  /// Must be called after SIGCHLD. Reaps only the node's own children, not those that this process
  /// had before.
  virtual void Reap() = 0;
  /// Tells a rank that another one has failed.
  virtual void Abort(int rank, const std::string& why) = 0;
  /// Sends a rank a request: kStop, kSave or kNote (rank_process.h). False if the rank can no
  /// longer receive it.
  virtual bool Ask(int rank, const char* what) = 0;
  /// Reports the flight records of its ranks by OnFlight(), immediately or later, in whatever state
  /// the ranks are.
  virtual void TellFlight() = 0;
  /// Kills all processes of the node.
  virtual void KillAll() = 0;
  /// True if all its processes have ended and everything from them has been read.
  virtual bool Finished() const = 0;
};

/// Makes the node of `program`'s processes on this machine. `in_child` is called in the forked
/// child; it must undo what the supervisor changed in its own process, such as the signal mask.
std::unique_ptr<Node> MakeLocalNode(JobProgram& program, NodeListener& listener,
                                    std::function<void()> in_child);

}  // namespace strata::launcher
