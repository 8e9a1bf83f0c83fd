// Node: the processes of a job on one machine, as whoever supervises them sees them. Two kinds: the
// starter and the ranks of this machine, and those behind a `strata worker` on another one.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "launcher/process/job_program.h"

namespace strata::launcher {

/// A descriptor to wait for, and what to do when it has something.
struct Source {
  int fd;
  std::function<void()> read;
};

/// What a node tells. All calls come from its sources and from OnChildEnded().
class NodeListener {
 public:
  virtual ~NodeListener() = default;
  /// `role`: RankRange::roles.
  virtual void OnRankStarted(int rank, int world_size, const std::string& role) = 0;
  /// With its waitpid() status.
  virtual void OnRankExited(int rank, int status) = 0;
  /// Of a rank, or of the starter (JobListener::kStarter): rank_process.h says which there are.
  virtual void OnMessage(int from, const Value& body) = 0;
  virtual void OnOutput(int rank, bool is_error, std::string_view line) = 0;
  /// The node itself is gone, and not because we ended it: exit code and cause for the job.
  virtual void OnLost(int exit_code, const std::string& cause) = 0;
};

class Node {
 public:
  virtual ~Node() = default;
  virtual void Start() = 0;
  virtual std::vector<Source> Sources() = 0;
  /// A child of this process has ended; the node may own it.
  virtual void OnChildEnded(pid_t pid, int status) = 0;
  /// Tells a rank of another's failure.
  virtual void Abort(int rank, const std::string& why) = 0;
  /// Asks a rank to end well by itself. False where it no longer listens.
  virtual bool Stop(int rank) = 0;
  /// Ends all its processes at once.
  virtual void KillAll() = 0;
  /// Everything has been heard.
  virtual bool Finished() const = 0;
};

/// The processes of `program` on this machine. `in_child` undoes, in a forked child, what the
/// supervisor did to its own process.
std::unique_ptr<Node> MakeLocalNode(JobProgram& program, NodeListener& listener,
                                    std::function<void()> in_child);

}  // namespace strata::launcher
