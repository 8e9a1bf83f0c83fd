// Supervise(): runs and watches the processes of a job, on one machine or on several. It promises:
// - A failing rank, Ctrl-C, SIGTERM and SIGHUP end all processes within 2 seconds (3 over several
//   machines, which tell of their ranks), also when nobody reads what the launcher shows.
// - If ranks can end early in good order (RankReporter::OnStop()), the first SIGTERM only asks them
//   to, and they may take all the time that they need. A second signal ends all processes. A signal
//   to all processes at once does the same: the others leave it to the launcher.
// - What cannot be written, such as a log on a full disk, asks such ranks likewise, once.
// - SIGUSR1 asks stoppable ranks for a save. SIGQUIT asks for a flight record: what each rank did
//   last, and where it is; one is also made of a job in which a rank was lost or hung.
// - If the launcher itself is killed, even by SIGKILL, all processes end within a second, also
//   stopped and computing ones: the kernel kills each process when its parent dies
//   (PR_SET_PDEATHSIG), and a thread in each rank ends the process when its channel closes.
// - The user is told the first cause, once; the exit code is that of the first cause.
// - No zombie and no orphan is left. The processes have their own process group, so the terminal's
//   Ctrl-C reaches the launcher only.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "launcher/process/job_process.h"
#include "launcher/process/output_queue.h"
#include "launcher/process/worker.h"

namespace strata::launcher {

struct SupervisorOptions {
  /// How long Prepare() may take; 0 = no limit.
  double prepare_seconds = 120;
  /// The longest time, after a failure, for the other ranks to say where they were and to end.
  double grace_seconds = 1;
  /// Where the listener writes what it shows. It is written while the job runs; as long as it is
  /// full, the ranks are not heard. After a signal it is given a second more, and ranks are heard
  /// in any case.
  OutputQueue* output = nullptr;
  /// Keeps a flight record (flight.h), and gives a line that says where, or why not; "" = there is
  /// no place for it. `wanted`: somebody asked for it, or a rank hung. Null: there are no records.
  std::function<std::string(const Value& record, bool wanted)> keep_record = {};
};

/// How a job ended.
struct Outcome {
  int exit_code = 0;
  /// Why it ended, for people: whole lines without a newline at the end; "" after success.
  std::string cause;
  /// A rank or a machine was lost, or hung, after the job had begun: another run may do without.
  /// False for what fails each time, such as a wrong script or a loss that is no number, and for
  /// what the user asked for.
  bool may_pass = false;
  /// Some machine had not begun its ranks yet, and nobody asked for the end. Of a job that ran
  /// before, a machine may be away for a while.
  bool is_early = false;
};

/// Runs a job to its end. REQUIRES: the process has a single thread. While Supervise() runs, it
/// takes SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1 and SIGCHLD, and ignores SIGPIPE; after one that
/// ended the job, SIGPIPE stays ignored. Other children of the process are left alone.
///
/// Exit codes: 0 = every rank did its work; 1 = a WorldError; 2 = a ConfigError; 128 + signal = a
/// signal ended a rank; 130 after Ctrl-C, 129 after SIGHUP, 143 after SIGTERM, unless all came to
/// its end; 141 where who reads `output` ends, without a signal to us. If a rank exits without a
/// reason, its own exit code.
Outcome Supervise(JobProgram& program, JobListener& listener,
                  const SupervisorOptions& options = {});

/// The same over several machines; hosts[0] is rank 0's. Its worker opens the store at
/// `store_port`, or for 0 at a port that the kernel chooses, and reports the port. Then the other
/// workers get their jobs. If a host is lost, the job ends. If this process ends, the workers'
/// inputs end, and the workers end all processes.
Outcome Supervise(std::vector<RemoteHost> hosts, int store_port, JobListener& listener,
                  const SupervisorOptions& options = {});

}  // namespace strata::launcher
