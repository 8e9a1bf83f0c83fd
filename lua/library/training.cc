// job:train{...} and job:start{...}: training in this process, all ranks as threads of it.

#include <atomic>
#include <cmath>
#include <thread>

#include "engine/base/fd.h"
#include "engine/base/gpu.h"
#include "engine/base/log.h"
#include "engine/base/text.h"
#include "engine/schedule/job/planned_program.h"
#include "engine/schedule/program/trace.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/host/engine_api.h"
#include "lua/host/measure.h"
#include "lua/library/job_object.h"

namespace strata::lua {
namespace {

/// What job:start{...} gives.
struct EngineObject {
  std::unique_ptr<Engine> engine;  ///< null once closed
  Job job;
  Plan plan;
};

}  // namespace

template <>
struct TypeOf<EngineObject> {
  static const ObjectType& Get();
};

namespace {

/// Makes an interrupt end what the engine does, while it lives.
class AbortOnInterrupt {
 public:
  AbortOnInterrupt(Limits& limits, Engine& engine)
      : limits_(limits), engine_(engine), thread_([this] { Run(); }) {}
  ~AbortOnInterrupt() {
    over_ = true;
    limits_.Wake();
    thread_.join();
  }

 private:
  void Run() {
    while (!over_ && !limits_.interrupted()) limits_.AwaitInterrupt();
    if (!over_) engine_.Abort("interrupted");
  }

  Limits& limits_;
  Engine& engine_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

/// Runs `work` on the engine while other threads may run Lua. An interrupt ends it with the error
/// "interrupted".
template <class Work>
void RunEngine(State& state, Engine& engine, Work work) {
  Limits& limits = state.core().limits;
  const Unlocked unlocked(state);
  const AbortOnInterrupt abort(limits, engine);
  try {
    work();
  } catch (const Error&) {
    limits.Poll();
    throw;
  }
}

/// The job as it trains in this process.
Job JobForThreads(lua_State* L) {
  Job job = ChangedJob(L, Self<JobObject>(L), 2);
  if (job.transport.empty()) job.transport = "threads";
  if (job.transport != "threads") {
    throw ConfigError(
        Str("training within a script runs all ranks as threads of this process; "
            "transport must be \"threads\", not \"",
            job.transport, "\""));
  }
  return job;
}

std::unique_ptr<Engine> Open(State& state, const Job& job, const Plan& plan) {
  const EngineApi& api = LoadEngine();
  const Unlocked unlocked(state);
  return api.OpenThreads(job, plan, state);
}

void Close(State& state, std::unique_ptr<Engine> engine) {
  const Unlocked unlocked(state);
  engine->Close();
  engine.reset();
}

std::shared_ptr<EngineObject> Start(State& state, Job job) {
  auto object = std::make_shared<EngineObject>();
  object->plan = strata::PlanJob(
      job, {.gpus = GpuCount(), .measure = MeasureHere(state, MeasureIn::kThisProcess)},
      &state.script());
  object->engine = Open(state, job, object->plan);
  object->job = std::move(job);
  return object;
}

/// How many steps job:train takes: `steps`, or `epochs`, or one pass over the data.
int64_t StepsOf(const Job& job, const Engine& engine) {
  if (job.steps > 0) return job.steps;
  const double epochs = job.epochs > 0 ? job.epochs : 1;
  return std::llround(std::ceil(epochs * static_cast<double>(engine.steps_per_epoch())));
}

Value StepValue(const StepResult& step) {
  Value value;
  value.Set("step", step.step).Set("loss", step.loss).Set("grad_norm", step.grad_norm);
  value.Set("lr", step.lr);
  value.Set("peak_memory", step.peak_memory);
  if (step.skipped > 0) value.Set("skipped", step.skipped);
  if (!step.micro_batch_losses.empty()) {
    const std::vector<double>& losses = step.micro_batch_losses;
    value.Set("losses", Value::List(losses.begin(), losses.end()));
  }
  return value;
}

/// Throws where the step was not taken; a warning where it was in spite of what is not finite.
void Tell(const StepResult& step) {
  step.CheckTaken();
  if (!step.nonfinite || step.nonfinite->report.empty()) return;
  STRATA_LOG(kWarning) << step.nonfinite->report;
}

/// The step before the one that was not taken, as `strata train` does.
void SaveLastGood(EngineObject& self, const StepResult& result, bool has_new_steps) {
  const bool saves = has_new_steps && !self.job.save.dir.empty();
  if (saves && result.nonfinite->has_finite_weights) self.engine->Save();
}

// Methods of what job:start{...} gives.

EngineObject& OpenEngine(lua_State* L) {
  EngineObject& object = Self<EngineObject>(L);
  if (!object.engine) throw ConfigError("this engine was closed");
  return object;
}

/// Of all replicas.
int64_t MicroBatchesOf(const Plan& plan) {
  return plan.batch.micro_batches * plan.topology.Size(kDataAxis);
}

/// e:train_batch([iterator]): one step; its mean loss.
int TrainBatch(lua_State* L) {
  EngineObject& self = OpenEngine(L);
  std::shared_ptr<MicroBatches> batch;
  if (!lua_isnoneornil(L, 2)) {
    batch = LoadEngine().PullMicroBatches(L, 2, MicroBatchesOf(self.plan));
  }
  StepResult result;
  RunEngine(State::Of(L), *self.engine, [&] { result = self.engine->TrainStep(batch.get()); });
  Tell(result);
  lua_pushnumber(L, result.loss);
  return 1;
}

/// e:eval_batch(iterator [, {outputs=true}]): the mean loss, and the outputs when asked for.
int EvalBatch(lua_State* L) {
  static const FieldTable kFields = {
      Field::Bool("outputs", "give the last stage's outputs too").Default(false)};
  EngineObject& self = OpenEngine(L);
  Call call = CallOf(ToValue(L, 3, "the options"));
  call.subject = "eval_batch";
  call.noun = "option";
  const bool wants_outputs = Canonicalize(kFields, call)["outputs"].as_bool();
  const EngineApi& api = LoadEngine();
  const auto batch = api.PullMicroBatches(L, 2, MicroBatchesOf(self.plan));
  const auto outputs = wants_outputs ? api.MakeOutputs() : nullptr;
  EvalResult result;
  RunEngine(State::Of(L), *self.engine,
            [&] { result = self.engine->EvalBatch(*batch, outputs.get()); });
  lua_pushnumber(L, result.loss);
  if (!outputs) return 1;
  api.PushOutputs(L, *outputs);
  return 2;
}

/// e:save(): the save's path, once it is complete.
int SaveEngine(lua_State* L) {
  EngineObject& self = OpenEngine(L);
  if (self.job.save.dir.empty()) {
    throw ConfigError("where to? give the job save = {dir=...}, or job:start{save=...}");
  }
  SaveReport report;
  RunEngine(State::Of(L), *self.engine, [&] { report = self.engine->Save(); });
  PushText(L, report.path);
  return 1;
}

int CloseEngine(lua_State* L) {
  EngineObject& self = Self<EngineObject>(L);
  if (self.engine) Close(State::Of(L), std::move(self.engine));
  return 0;
}

int ShowEngine(lua_State* L) {
  const EngineObject& self = Self<EngineObject>(L);
  PushText(L, Str("engine of job \"", self.job.name, "\", ",
                  Plural(static_cast<int64_t>(self.plan.stages.size()), "stage"),
                  self.engine ? "" : ", closed"));
  return 1;
}

int EnginePlan(lua_State* L) {
  const EngineObject& self = Self<EngineObject>(L);
  PushObject(L, std::make_shared<PlanObject>(PlanObject{self.job, self.plan}));
  return 1;
}

}  // namespace

const ObjectType& TypeOf<EngineObject>::Get() {
  static const ObjectType type{
      "engine",
      {{"train_batch", Bound<TrainBatch, 2>,
        "engine:train_batch([iterator]): one step; its mean loss"},
       {"eval_batch", Bound<EvalBatch, 3>,
        "engine:eval_batch(iterator [, {outputs=true}]): the mean loss, and the last stage's "
        "outputs"},
       {"save", Bound<SaveEngine, 1>, "engine:save(): saves the training; the save's path"},
       {"close", Bound<CloseEngine, 1>, "engine:close(): ends it"}},
      {{"plan", Bound<EnginePlan>, "engine.plan: what runs", nullptr, GivenType<PlanObject>}},
      {{"__tostring", Bound<ShowEngine>}},
      nullptr,
      nullptr,
      nullptr,
      "an engine: a job that runs in this process, step by step"};
  return type;
}

/// job:train{...}: all steps that were not done before; a list with an entry for each.
int JobTrain(lua_State* L) {
  State& state = State::Of(L);
  Job job = JobForThreads(L);
  CheckTrainable(job);
  if (!job.trace.empty()) CheckWritable(job.trace);
  const auto self = Start(state, std::move(job));
  Value::List steps;
  RunEngine(state, *self->engine, [&] {
    const int64_t count = StepsOf(self->job, *self->engine);
    for (int64_t done = self->engine->start().step; done < count; ++done) {
      const StepResult result = self->engine->TrainStep();
      if (!result.is_taken) SaveLastGood(*self, result, !steps.empty());
      Tell(result);
      steps.push_back(StepValue(result));
      if (result.save && !result.save->error.empty()) {
        STRATA_LOG(kWarning) << "step " << result.save->step
                             << " was not saved: " << result.save->error;
      }
    }
    if (!steps.empty() && !self->job.save.dir.empty()) self->engine->Save();
    if (!self->job.trace.empty()) {
      WriteFile(self->job.trace, schedule::ToChromeTrace(self->engine->TakeTrace()));
    }
  });
  Close(state, std::move(self->engine));
  PushValue(L, steps);
  return 1;
}

/// job:start{...}: an engine to be driven step by step.
int JobStart(lua_State* L) {
  Job job = JobForThreads(L);
  if (!job.trace.empty()) {
    throw ConfigError(
        "job:start{...} writes no trace: job:train{...} does, or give trace=\"none\"");
  }
  PushObject(L, Start(State::Of(L), std::move(job)));
  return 1;
}

int EngineType(lua_State* L) { return GivenType<EngineObject>(L); }

}  // namespace strata::lua
