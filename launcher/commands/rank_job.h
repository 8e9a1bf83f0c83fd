// RankJob: the JobProgram of all commands that run a job's ranks. Subclasses define what a rank
// does with its engine.
//
// The starter evaluates the script, plans, loads the engine and makes the store. Each rank
// evaluates the script again in its own Lua state, checks that it got the same job, and opens the
// engine. With the transport "threads" there is one process, whose threads are the ranks.
//
// If the rest of the ranks are started elsewhere (by an outside launcher such as torchrun or
// mpirun, or by another `strata worker`), only the placement's ranks start here, often a single
// one. Only the starter of rank 0 prints and reports.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/forecast/proved_programs.h"
#include "engine/job/job.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine.h"
#include "launcher/command.h"
#include "launcher/commands/rank_places.h"
#include "launcher/place/placement.h"
#include "launcher/process/job_process.h"
#include "lua/core/state.h"

namespace strata::launcher {

class RankJob : public JobProgram {
 public:
  /// `arguments` are the script and its flags. `command` must outlive the job.
  RankJob(const Command& command, std::vector<std::string> arguments, Placement placement)
      : command_(command), arguments_(std::move(arguments)), places_(std::move(placement)) {}

  RankRange Prepare(Reporter& reporter) override;
  void OnForked() override { places_.OnForked(); }
  void Run(int rank, RankReporter& reporter) override;

 protected:
  /// True if the ranks run training steps; false if they only run forwards.
  virtual bool trains() const { return true; }
  /// Changes the script's job, for commands that run a variant of it.
  virtual void Change(Job&) const {}
  /// Called in each starter before the planning.
  virtual void OnJob(const Job&, Reporter&) {}
  /// Called in rank 0's starter after the planning. `processes` is the number of processes of the
  /// job; it is 1 when the ranks are threads.
  virtual void OnPlan(const Job& job, const Plan& plan, Script& script, int processes,
                      Reporter& reporter) = 0;
  /// Called in each process; does the work. Only rank 0 reports.
  virtual void Work(const Job& job, Engine& engine, Script& script, int rank,
                    RankReporter& reporter) = 0;

  /// The plan; valid after Prepare().
  const Plan& plan() const { return plan_; }
  /// True if all ranks are on this machine, so that the plan uses this machine's measurements.
  bool is_alone() const { return !places_.placement().is_part(); }
  /// The command's own flags.
  Value own_flags() const;

 private:
  void MakePlan(Reporter& reporter);
  Job Load(lua::State& state) const;
  Job LoadInRank(lua::State& state);
  void ProvePrograms(const Job& job, Script& script);
  std::unique_ptr<Engine> Open(const Job& job, lua::State& state, int rank,
                               std::span<FlightRing> flight);

  std::string StartPosition(int rank) const;

  const Command& command_;
  std::vector<std::string> arguments_;
  RankPlaces places_;
  // Made in the starter; the ranks inherit it through fork():
  Value starter_job_;
  Plan plan_;
  std::shared_ptr<ProvedPrograms> programs_;  // null if the ranks are threads
  RankRange range_;
};

}  // namespace strata::launcher
