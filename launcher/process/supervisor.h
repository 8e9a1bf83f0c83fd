// Supervise(): runs and watches the processes of a job, on one machine or on several. Guarantees:
// - A failing rank, Ctrl-C, SIGTERM and SIGHUP end all processes within 2 seconds (3 on several
//   machines, which report on their ranks), even if nobody reads the launcher's output.
// - If ranks can end early in good order (RankReporter::OnStop()), the first SIGTERM only asks them
//   to, and they may take as long as they need. A second signal ends all processes. A signal that
//   is sent to all processes has the same effect, because the others leave it to the launcher.
// - If a file cannot be written, such as a log on a full disk, such ranks are asked likewise, once.
// - SIGUSR1 asks stoppable ranks for a save. SIGQUIT requests a flight record: what each rank did
//   last, and where it is. One is also made if a rank was lost or hung.
// - If the launcher itself is killed, even by SIGKILL, all processes end within a second, including
//   stopped and computing ones: the kernel kills each process when its parent dies
//   (PR_SET_PDEATHSIG), and a thread in each rank ends the process when its channel closes.
// - The user is told the first cause, once; the exit code is that of the first cause.
// - No zombie and no orphan remains. The processes have their own process group, so the terminal's
//   Ctrl-C reaches only the launcher.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/process/job_process.h"
#include "launcher/process/output_queue.h"
#include "launcher/process/worker.h"

namespace strata::launcher {

struct SupervisorOptions {
  /// The limit of Prepare() in seconds; 0 = no limit.
  double prepare_seconds = 120;
  /// The most seconds, after a failure, for the other ranks to report where they were and to end.
  double grace_seconds = 1;
  /// The queue into which the listener writes. It is emptied while the job runs; as long as it is
  /// full, nothing is read from the ranks. After a signal it has one more second, and ranks are
  /// read in any case.
  OutputQueue* output = nullptr;
  /// Writes a flight record (flight.h), and returns a line that says where, or why not; "" if there
  /// is no place for it. `wanted`: the user asked for it, or a rank hung. Null: no records are
  /// written.
  std::function<std::string(const Value& record, bool wanted)> keep_record = {};
};

/// How a job ended.
struct Outcome {
  int exit_code = 0;
  /// The cause of the end, for the user: whole lines without a final newline; "" after success.
  std::string cause;
  /// True if a rank or a machine was lost or hung after the job had begun, so that another run may
  /// succeed. False for failures that would happen again, such as an incorrect script or a loss
  /// that is not a number, and for an end that the user requested.
  bool may_pass = false;
  /// True if some machine had not started its ranks yet, and nobody requested the end. If an
  /// earlier run of the job worked, a machine may be away for a while.
  bool is_early = false;
};

/// Runs a job to its end. REQUIRES: the process has a single thread. While Supervise() runs, it
/// handles SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGCHLD, and ignores SIGPIPE; after a
/// signal that ended the job, SIGPIPE stays ignored. Other children of the process are not touched.
///
/// Exit codes: 0 = every rank did its work; 1 = a WorldError; 2 = a ConfigError; 128 + signal = a
/// signal ended a rank; 130 after Ctrl-C, 129 after SIGHUP, 143 after SIGTERM unless the job
/// reached its end; 141 if the reader of `output` ends and we get no signal. If a rank exits
/// without a reason, its own exit code.
Outcome Supervise(JobProgram& program, JobListener& listener,
                  const SupervisorOptions& options = {});

/// The same over several machines; hosts[0] is rank 0's. Its worker opens the store at `store_port`
/// (0 = at a port that the kernel chooses) and reports the port. Then the other workers get their
/// jobs. If a host is lost, the job ends. If this process ends, the workers' inputs end, and the
/// workers end all their processes.
Outcome Supervise(std::vector<RemoteHost> hosts, int store_port, JobListener& listener,
                  const SupervisorOptions& options = {});

}  // namespace strata::launcher
