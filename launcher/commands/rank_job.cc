// RankJob: prepares the job in the starter, and opens the engine in each rank.
#include "launcher/commands/rank_job.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/progress_line.h"
#include "engine/base/text.h"
#include "engine/checkpoint/checkpoint.h"
#include "engine/job/build_job.h"
#include "engine/runtime/saves/resumable.h"
#include "engine/runtime/watch/fault.h"
#include "launcher/commands/script_job.h"
#include "launcher/report/train_report.h"
#include "lua/host/engine_api.h"
#include "lua/host/measure.h"

namespace strata::launcher {
namespace {

/// While an object lives, the failure of another rank aborts the engine. Afterwards the rank keeps
/// reporting its last position.
class AbortsEngine {
 public:
  AbortsEngine(RankReporter& reporter, ControlEngine& engine)
      : reporter_(reporter), engine_(engine) {
    reporter.OnAbort([&engine](const std::string& why) { engine.Abort(why); },
                     [&engine] { return engine.Position(); });
    reporter.OnNote([&engine] { engine.NoteStacks(); });
  }
  ~AbortsEngine() {
    const std::string last = engine_.Position();
    reporter_.OnAbort([](const std::string&) {}, [last] { return last; });
    reporter_.OnNote(nullptr);
  }
  AbortsEngine(const AbortsEngine&) = delete;
  AbortsEngine& operator=(const AbortsEngine&) = delete;

 private:
  RankReporter& reporter_;
  ControlEngine& engine_;
};

/// While an object lives, and if the job has saves, SIGTERM asks the engine to stop after the
/// current step, and SIGUSR1 asks it for a save.
class StopsEngine {
 public:
  StopsEngine(RankReporter& reporter, ControlEngine& engine, const Job& job) : reporter_(reporter) {
    if (job.save.dir.empty()) return;
    reporter_.OnStop([&engine] { engine.RequestStop(); }, [&engine] { engine.RequestSave(); });
  }
  ~StopsEngine() { reporter_.OnStop(nullptr); }
  StopsEngine(const StopsEngine&) = delete;
  StopsEngine& operator=(const StopsEngine&) = delete;

 private:
  RankReporter& reporter_;
};

/// While an object lives, the progress lines of this process are sent to the launcher if
/// `is_heard`, and otherwise not said.
class ReportsProgress {
 public:
  ReportsProgress(Reporter& reporter, bool is_heard) {
    SetProgressOutput({});
    if (!is_heard) return;
    SetProgressOutput(
        {.say = [&reporter](const std::string& line) { reporter.Send(ProgressMessage(line)); }});
  }
  ~ReportsProgress() { SetProgressOutput({}); }
  ReportsProgress(const ReportsProgress&) = delete;
  ReportsProgress& operator=(const ReportsProgress&) = delete;
};

/// A rank's role for the user: "stage 1", "stages 0, 3, replica 1".
std::string RoleOf(const Plan& plan, int rank) {
  std::vector<int> stages;
  for (const StagePlan& stage : plan.stages) {
    if (stage.rank == plan.topology.Index(rank, kPipeAxis)) stages.push_back(stage.stage);
  }
  std::string role = Str(stages.size() == 1 ? "stage " : "stages ", Join(stages, ", "));
  const auto add = [&](std::string_view axis, const char* what) {
    if (plan.topology.Size(axis) > 1) role += Str(", ", what, " ", plan.topology.Index(rank, axis));
  };
  add(kDataAxis, "replica");
  add(kModelAxis, "part");
  return role;
}

/// The role of a process whose threads are the ranks.
std::string RoleOfAll(const Plan& plan) {
  const int ranks = plan.topology.world_size();
  return ranks == 1 ? "" : Str("the process of all ", ranks, " ranks");
}

/// The reason why nothing can be read at the path; "" if something can.
std::string TroubleAt(const std::string& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) return "";
  return error ? Str(path, ": ", error.message()) : Str("there is no file or folder ", path);
}

/// Checks once, in the starter, that the weights or the save to start from exist; so each rank need
/// not.
void CheckBeginning(const Job& job) {
  if (!job.weights.from.empty()) {
    const std::string trouble = TroubleAt(job.weights.from);
    if (!trouble.empty()) throw ConfigError("weights: " + trouble);
  }
  if (!job.resume.empty() && job.resume != kLatestSave) {
    std::string trouble = TroubleAt(job.resume);
    if (trouble.empty()) return;
    if (job.resume == "best") trouble += "; the best save is kept with save = {best = ...}";
    throw ConfigError(WithNewestWholeSave("resume: " + trouble, job.resume));
  }
}

void WriteToStdout(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

RankRange RankJob::Prepare(Reporter& reporter) {
  MakePlan(reporter);
  // Planning may have computed functions of the script. This process lives as long as its ranks, so
  // it gives back the memory that they have left.
  lua::LoadEngine().ReleaseFreeMemory();
  places_.OpenMeeting(range_);
  return range_;
}

/// Evaluates the script, plans, and proves the programs.
void RankJob::MakePlan(Reporter& reporter) {
  // No pool of threads may exist when the ranks are forked. Planning runs functional layers to find
  // their shapes, which could start a pool. The ranks' engines set their own number of threads.
  ::setenv("OMP_NUM_THREADS", "1", 1);
  const ReportsProgress reports(reporter, places_.has_rank_0());
  lua::StateOptions options = StateOptionsOf(own_flags());
  if (!places_.has_rank_0()) options.print = [](std::string_view) {};
  lua::State state(options);
  const Job job = Load(state);
  if (trains()) CheckTrainable(job);
  CheckBeginning(job);
  OnJob(job, reporter);
  plan_ =
      PlanOn(places_.placement(), job, state.script(),
             {.measure = lua::MeasureHere(state, lua::MeasureIn::kChild), .wants_known = trains()});
  CheckResume(job, plan_);
  starter_job_ = job.ToValue();
  const int processes = plan_.transport == "threads" ? 1 : plan_.topology.world_size();
  range_ = places_.RangeOf(processes);
  if (processes == 1) range_.threads = plan_.topology.world_size();
  for (int i = 0; i < range_.count; ++i) {
    range_.roles.push_back(processes > 1 ? RoleOf(plan_, range_.first + i) : RoleOfAll(plan_));
  }
  if (places_.has_rank_0()) OnPlan(job, plan_, state.script(), processes, reporter);
  if (processes > 1) ProvePrograms(job, state.script());
}

void RankJob::Run(int rank, RankReporter& reporter) {
  if (rank != 0) OnForked();
  const ReportsProgress reports(reporter, /*is_heard=*/true);
  // The starter has already printed what the script prints while it is evaluated.
  bool evaluating = true;
  lua::StateOptions options = StateOptionsOf(own_flags());
  options.print = [&](std::string_view text) {
    if (!evaluating) WriteToStdout(text);
  };
  lua::State state(options);
  const Job job = LoadInRank(state);
  evaluating = false;
  reporter.OnAbort(nullptr, [position = StartPosition(rank)] { return position; });
  const std::unique_ptr<Engine> engine = Open(job, state, rank, reporter.flight());
  const AbortsEngine aborts(reporter, *engine);
  const StopsEngine stops(reporter, *engine, job);
  Work(job, *engine, state.script(), rank, reporter);
  engine->Close();
}

/// Proves the programs once for all ranks that are forked here.
void RankJob::ProvePrograms(const Job& job, Script& script) {
  programs_ = std::make_shared<ProvedPrograms>();
  if (trains()) programs_->Training(job, plan_, &script);
  programs_->Evaluation(plan_);
}

Value RankJob::own_flags() const { return ParseScriptArguments(command_, arguments_).flags.own(); }

Job RankJob::Load(lua::State& state) const {
  ScriptArguments script = ParseScriptArguments(command_, arguments_);
  Job job = state.LoadJob(script.path, script.flags);
  Change(job);
  return job;
}

Job RankJob::LoadInRank(lua::State& state) {
  Job job = Load(state);
  const std::string difference = FirstDifference(starter_job_, job.ToValue());
  if (difference.empty()) return job;
  throw ConfigError(Str(ParseScriptArguments(command_, arguments_).path,
                        " gives another job each time that it is evaluated: ", difference));
}

std::unique_ptr<Engine> RankJob::Open(const Job& job, lua::State& state, int rank,
                                      std::span<FlightRing> flight) {
  const lua::EngineApi& api = lua::LoadEngine();
  if (range_.world_size == 1) return api.OpenThreads(job, plan_, state, flight);
  if (const auto fault = FaultOf(rank)) fault->Reach(kStartAction);
  RankPlace place = places_.Of(rank);
  place.flight = &flight.front();
  return api.OpenRank(job, plan_, state, place, programs_);
}

std::string RankJob::StartPosition(int rank) const {
  if (range_.world_size == 1) return Str("rank ", rank, ": ", kStartAction);
  return Str("rank ", rank, " (", range_.roles[rank - range_.first], "): ", kStartAction,
             ", waiting for all ranks");
}

}  // namespace strata::launcher
