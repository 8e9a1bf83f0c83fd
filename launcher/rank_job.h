// RankJob: a planned job as the processes of one machine run it, whatever they do with the engine.
//
// The starter evaluates the script, plans, loads the engine and binds the store's socket; each rank
// evaluates the script again in a state of its own, makes sure that it got the same job, and opens
// the engine. With the transport "threads" there is one process, whose threads are the ranks.
//
// Where another starter has the rest of the ranks (torchrun, mpirun, a `strata worker`), the
// processes here are the placement's, often a single one; only rank 0's starter prints and reports.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/plan/plan.h"
#include "engine/runtime/engine.h"
#include "engine/spec/job.h"
#include "launcher/command.h"
#include "launcher/placement.h"
#include "launcher/process/fd.h"
#include "launcher/process/job_program.h"
#include "lua/state.h"

namespace strata::launcher {

class RankJob : public JobProgram {
 public:
  /// `arguments`: the script and its flags; `command` says which of them are its own.
  RankJob(const Command& command, std::vector<std::string> arguments, Placement placement)
      : command_(command), arguments_(std::move(arguments)), placement_(std::move(placement)) {}

  RankRange Prepare(Reporter& reporter) override;
  void Run(int rank, RankReporter& reporter) override;

 protected:
  /// In rank 0's starter, once all is planned; `processes` are the ranks, or hold all as threads.
  virtual void OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
                      Reporter& reporter) = 0;
  /// In each process: the work itself. rank 0 reports.
  virtual void Work(const Job& job, Engine& engine, int rank, RankReporter& reporter) = 0;

  /// The command's own flags.
  Value own_flags() const;

 private:
  Job LoadInRank(lua::State& state);
  std::unique_ptr<Engine> Open(const Job& job, lua::State& state, int rank);

  std::string StartPosition(int rank) const;
  RankPlace PlaceOf(int rank);

  const Command& command_;
  std::vector<std::string> arguments_;
  Placement placement_;
  // Made by the starter, inherited by the ranks:
  Value starter_job_;
  Plan plan_;
  RankRange range_;
  LoopbackListener store_;
};

}  // namespace strata::launcher
