// Supervision of a job's processes, on this machine or on several. Its promises:
// - A failing rank, Ctrl-C, SIGTERM and SIGHUP end everything within 2 seconds.
// - When the launcher itself is killed, even with SIGKILL, no process is left within a second, not
//   even one that is stopped or stuck in a computation: each process is killed by the kernel when
//   its parent dies (PR_SET_PDEATHSIG), and a thread in each rank ends it when its channel closes.
// - Ranks that can end well by themselves (RankReporter::OnStop) are asked to by SIGTERM, with all
//   the time that they need; a second signal ends everything as the first one does otherwise.
// - The first cause is told once, and its exit code is kept.
// - No zombie, no orphan. The processes have a process group of their own, so that the terminal's
//   Ctrl-C reaches the launcher alone.
#pragma once

#include <string>
#include <vector>

#include "launcher/process/job_program.h"
#include "launcher/process/worker.h"

namespace strata::launcher {

struct SupervisorOptions {
  /// How long Prepare() may take; 0 = no limit.
  double prepare_seconds = 120;
  /// How long the survivors of a failure may take to say where they were and to end by themselves.
  double grace_seconds = 1;
};

/// How a job ended.
struct Outcome {
  int exit_code = 0;
  /// Why it ended, for people: whole lines without a newline at the end; "" after success.
  std::string cause;
};

/// Runs a job to its end. To be called by a process of one thread, whose children it owns: it
/// becomes their reaper and takes SIGINT, SIGTERM, SIGHUP and SIGCHLD while it runs.
///
/// Exit codes: 0 every rank did its work; 2 the declaration is wrong (ConfigError); 1 the world
/// failed; a rank's own code when it exits without saying why; 128 + signal when a signal ended a
/// rank; 130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
Outcome Supervise(JobProgram& program, JobListener& listener,
                  const SupervisorOptions& options = {});

/// The same over several machines, rank 0's first. Its worker says where the store listens, at
/// `store_port` or, for 0, at a port that the kernel chooses; then the others get their jobs. A
/// host that is lost ends the job; when this process ends, the workers' inputs end and they end
/// all.
Outcome Supervise(std::vector<RemoteHost> hosts, int store_port, JobListener& listener,
                  const SupervisorOptions& options = {});

}  // namespace strata::launcher
