// job:train{...} and job:start{...}: training in this process, all ranks as threads of it.

#include <algorithm>
#include <atomic>
#include <exception>
#include <fstream>
#include <string_view>
#include <thread>
#include <utility>

#include "engine/base/fd.h"
#include "engine/base/log.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/text.h"
#include "engine/layers/parts.h"
#include "engine/runtime/records.h"
#include "engine/runtime/texts.h"
#include "engine/runtime/trainer.h"
#include "engine/schedule/trace.h"
#include "engine/search/plan_job.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/core/file_access.h"
#include "lua/host/engine_api.h"
#include "lua/host/measure.h"
#include "lua/library/job_object.h"

namespace strata::lua {
namespace {

/// While an object lives, an interrupt of the script aborts the engine's work.
class AbortOnInterrupt {
 public:
  AbortOnInterrupt(Limits& limits, ControlEngine& engine)
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
  ControlEngine& engine_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

/// Runs `work` on the engine while other threads may run Lua. An interrupt aborts it with the error
/// "interrupted".
template <class Work>
void RunEngine(State& state, ControlEngine& engine, Work work) {
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

/// The job with the keys of job:train{...} or job:start{...}, checked for training in this process.
Job JobForThreads(lua_State* L, const JobObject& self) {
  Job job = ChangedJob(L, self, 2);
  if (job.transport.empty()) job.transport = "threads";
  if (job.transport != "threads") {
    throw ConfigError(
        Str("training within a script runs all ranks as threads of this process; "
            "transport must be \"threads\", not \"",
            job.transport, "\""));
  }
  CheckTrainingWrites(L, job.save.dir, "save.dir");
  CheckTrainingWrites(L, job.trace, "trace");
  return job;
}

/// True if a trace may overwrite this file: it is empty or is a trace itself.
bool IsTrace(const std::string& path) {
  constexpr std::string_view kBegins = "{\"displayTimeUnit\":";
  std::string begin(kBegins.size(), '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  return file.gcount() == 0 || begin == kBegins;
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

Value StepValue(const StepResult& step) {
  Value value;
  value.Set("step", step.step).Set("loss", step.loss).Set("grad_norm", step.grad_norm);
  value.Set("lr", step.lr);
  value.Set("peak_memory", step.peak_memory);
  if (!step.parts.empty()) value.Set("parts", PartsValue(step.parts));
  if (step.skipped > 0) value.Set("skipped", step.skipped);
  if (step.loss_scale != 1) value.Set("loss_scale", step.loss_scale);
  if (!step.histograms.is_null()) value.Set("histograms", step.histograms);
  if (!step.micro_batch_losses.empty()) {
    const std::vector<double>& losses = step.micro_batch_losses;
    value.Set("losses", Value::List(losses.begin(), losses.end()));
  }
  return value;
}

/// The evaluation as {loss=, samples=, accuracy=, parts=, NAME=...}, where NAME is a metric.
Value EvalValue(const EvalResult& result) {
  Value value = result.metrics;
  value.Set("loss", result.loss).Set("samples", result.samples);
  if (result.has_metric) value.Set("accuracy", result.metric);
  if (!result.parts.empty()) value.Set("parts", PartsValue(result.parts));
  return value;
}

/// Throws if the step was skipped; logs a warning if it was taken with values that are not finite.
void Tell(const StepVerdict& step) {
  step.CheckTaken();
  if (!step.nonfinite || step.nonfinite->report.empty()) return;
  STRATA_LOG(kWarning) << step.nonfinite->report;
}

void Tell(const StartReport& start) {
  for (const std::string& note : start.notes) STRATA_LOG(kWarning) << note;
}

/// Logs a warning for a save that failed; the training goes on.
void Tell(const SaveReport& report) {
  if (report.error.empty()) return;
  STRATA_LOG(kWarning) << "step " << report.step << " was not saved: " << report.error;
}

/// Collects the list that job:train{...} returns.
class StepList : public TrainObserver {
 public:
  void OnStart(int64_t, const StartReport& start) override { Tell(start); }
  void OnStep(const StepResult& result) override { steps_.push_back(StepValue(result)); }
  void OnNonFinite(const std::string& report) override { STRATA_LOG(kWarning) << report; }
  void OnRecut(const RecutReport& report) override { STRATA_LOG(kWarning) << RecutText(report); }
  void OnSave(const SaveReport& report) override { Tell(report); }
  void OnEval(int64_t, const EvalResult& result, bool) override {
    if (!steps_.empty()) steps_.back().Set("test", EvalValue(result));
  }
  void OnSamples(int64_t, const std::vector<std::string>& texts, const std::string& note) override {
    if (!steps_.empty()) steps_.back().Set("texts", Value::List(texts.begin(), texts.end()));
    if (!note.empty() && !std::exchange(has_noted_, true)) {
      STRATA_LOG(kWarning) << note << ": the whole text runs for every token";
    }
  }
  Value::List Take() { return std::move(steps_); }

 private:
  Value::List steps_;
  bool has_noted_ = false;
};

// ---- Methods of the result of job:start{...}

void CheckOpen(const EngineObject& self) {
  if (!self.engine) throw ConfigError("this engine was closed");
}

/// The number of micro-batches of a step, of all replicas together.
int64_t MicroBatchesOf(const Plan& plan) {
  return plan.batch.micro_batches * plan.topology.Size(kDataAxis);
}

/// The engine's plan with other cuts.
Plan PlanCut(State& state, const EngineObject& self, const std::vector<int>& cuts) {
  return RecutPlan(self.job, self.plan, cuts, nullptr, &state.script());
}

/// Waits for the save that is being written; throws WorldError if it failed.
void FinishSave(EngineObject& self) {
  const std::optional<SaveReport> report = self.engine->WaitForSave();
  if (!report || report->error.empty()) return;
  throw WorldError(Str("the save of step ", report->step, " failed: ", report->error));
}

/// e:train_batch([iterator]) runs one step and returns its mean loss.
double TrainBatch(lua_State* L, EngineObject& self) {
  CheckOpen(self);
  std::shared_ptr<MicroBatches> batch;
  if (!lua_isnoneornil(L, 2)) {
    batch = LoadEngine().PullMicroBatches(L, 2, MicroBatchesOf(self.plan));
  }
  StepResult result;
  RunEngine(State::Of(L), *self.engine, [&] {
    self.has_failed = true;
    result = self.engine->TrainStep(batch.get());
    self.has_failed = false;
    if (result.save) Tell(*result.save);
    if (result.owes_save) Tell(self.engine->FinishSave());
  });
  if (result.recut) {
    STRATA_LOG(kWarning) << RecutText(*result.recut);
    self.plan = PlanCut(State::Of(L), self, result.recut->cuts);
  }
  Tell(result);
  return result.loss;
}

/// Warns of layers whose results may change when they move to another rank.
void WarnOfMoving(const Job& job) {
  const auto is_own = [](const LayerSpec& layer) {
    return layer.scripted && layer.type != "function";
  };
  if (std::ranges::any_of(job.layers, is_own)) {
    STRATA_LOG(kWarning) << "recut: what layers of strata.layer keep in `self`, beside their "
                            "parameters, does not move";
  }
}

/// e:recut{0, 8, 22} moves layers to these cuts and returns a text that lists the moves.
std::string Recut(lua_State* L, EngineObject& self) {
  CheckOpen(self);
  const Value given = ToValue(L, 2, "cuts such as {0, 8, 22}");
  if (!given.is_list()) throw ConfigError(Str("recut expects cuts, got ", given.Describe()));
  const std::vector<int> bounds = CutNames(self.job.layers).Positions(given, "recut");
  Plan next = PlanCut(State::Of(L), self, bounds);  // refuses cuts that the ranks would refuse
  WarnOfMoving(self.job);
  RecutReport report;
  RunEngine(State::Of(L), *self.engine, [&] { report = self.engine->Recut(bounds); });
  self.plan = std::move(next);
  return report.moves;
}

/// e:predict(x) returns the outputs of the last layer, one row for each row of x.
Pushed PredictRows(lua_State* L, EngineObject& self) {
  CheckOpen(self);
  const EngineApi& api = LoadEngine();
  const int64_t asked = self.job.eval.batch;
  const int64_t rows = asked > 0 ? asked : self.plan.batch.micro_batch_size;
  const auto inputs = api.CutInputs(L, 2, rows);
  const auto outputs = api.MakeOutputs();
  RunEngine(State::Of(L), *self.engine, [&] { self.engine->PredictBatch(*inputs, *outputs); });
  api.PushRows(L, *inputs, *outputs);
  return {1};
}

/// The prompts given as arguments, or as a list.
std::vector<std::string> PromptsOf(const Value::List& arguments) {
  std::vector<std::string> prompts;
  for (const Value& argument : arguments) {
    for (const Value& prompt : argument.is_list() ? argument.as_list() : Value::List{argument}) {
      if (!prompt.is_string()) {
        throw ConfigError(Str("generate: expected texts, got ", prompt.Describe()));
      }
      prompts.push_back(prompt.as_string());
    }
  }
  return prompts;
}

/// e:generate("Once upon" [, {tokens=20}]) prints the text as it is generated. With stream=false it
/// returns the text instead, or a list of texts for several prompts.
Pushed Generate(lua_State* L, EngineObject& self) {
  static const FieldTable kFields = [] {
    FieldTable fields = TextFields();
    fields.push_back(
        Field::Bool("stream", "show the text as it comes; else give it").Default(true));
    return fields;
  }();
  CheckOpen(self);
  const Arguments arguments(L, 2);
  const Value options = OptionsOf(Value::MakeMap(arguments.Named("generate")), kFields, "generate");
  const std::vector<std::string> prompts = PromptsOf(arguments.Positional("generate"));
  Texts texts(self.job, self.plan, options, prompts);
  const bool streams = options["stream"].as_bool();
  State::Core& core = State::Core::Of(L);
  const auto show = [&](const std::string& text) { PrintText(core, Printable(text)); };
  const bool is_single = prompts.size() == 1;
  if (streams && is_single) show(prompts[0]);
  RunEngine(State::Of(L), *self.engine, [&] {
    texts.Write(
        *self.engine,
        [](const TextReport& report) {
          if (report.note.empty()) return;
          STRATA_LOG(kWarning) << report.note << ": the whole text runs for every token";
        },
        [&](size_t, const std::string& piece, bool is_last) {
          if (streams && is_single) show(is_last ? Str(piece, "\n") : piece);
        });
  });
  if (!streams) {
    is_single ? Push(L, texts.texts()[0]) : Push(L, texts.texts());
    return {1};
  }
  for (size_t i = 0; !is_single && i < prompts.size(); ++i) {
    show(Str("[", i + 1, "] ", texts.texts()[i], "\n"));
  }
  return {0};
}

/// e:eval_batch(iterator [, {outputs=true}]) returns the mean loss, and the outputs if requested.
Pushed EvalBatch(lua_State* L, EngineObject& self) {
  static const FieldTable kFields = {
      Field::Bool("outputs", "give the last stage's outputs too").Default(false)};
  CheckOpen(self);
  const Value options = OptionsOf(ToValue(L, 3, "the options"), kFields, "eval_batch");
  const bool wants_outputs = options["outputs"].as_bool();
  const EngineApi& api = LoadEngine();
  const auto batch = api.PullMicroBatches(L, 2, MicroBatchesOf(self.plan));
  const auto outputs = wants_outputs ? api.MakeOutputs() : nullptr;
  EvalResult result;
  RunEngine(State::Of(L), *self.engine,
            [&] { result = self.engine->EvalBatch(*batch, outputs.get()); });
  lua_pushnumber(L, result.loss);
  if (!outputs) return {1};
  api.PushOutputs(L, *outputs);
  return {2};
}

/// e:evaluate() runs the job's test data, each sample once, and returns {loss=, samples=,
/// accuracy=, ...}.
Value Evaluate(lua_State* L, EngineObject& self) {
  CheckOpen(self);
  EvalResult result;
  RunEngine(State::Of(L), *self.engine, [&] {
    result = self.engine->EvaluateTestData();
    if (result.is_best) Tell(self.engine->SaveBest());
  });
  return EvalValue(result);
}

/// Pushes a copy of a tensor of the model, by its name as `strata inspect` shows it.
Pushed PushTensor(lua_State* L, EngineObject& self, const std::string& name, Engine::Kind kind) {
  CheckOpen(self);
  const EngineApi& api = LoadEngine();
  const auto found = api.MakeOutputs();
  RunEngine(State::Of(L), *self.engine, [&] { self.engine->ReadTensor(name, kind, *found); });
  api.PushOutputs(L, *found);
  lua_rawgeti(L, -1, 1);
  if (!lua_isnil(L, -1)) return {1};
  std::vector<std::string> names;
  RunEngine(State::Of(L), *self.engine, [&] {
    for (const TensorDigest& digest : self.engine->Parameters()) names.push_back(digest.path);
  });
  const bool is_known = std::ranges::find(names, name) != names.end();
  throw ConfigError(is_known ? Str("parameter \"", name, "\" does not learn: it has no gradient")
                             : Str("no parameter \"", name, "\"", DidYouMean(name, names)));
}

/// e:parameter(name) returns a copy of the parameter.
Pushed ReadParameter(lua_State* L, EngineObject& self, const std::string& name) {
  return PushTensor(L, self, name, Engine::Kind::kParameter);
}

/// e:gradient(name) returns a copy of the last step's gradient, as the optimizer used it.
Pushed ReadGradient(lua_State* L, EngineObject& self, const std::string& name) {
  return PushTensor(L, self, name, Engine::Kind::kGradient);
}

/// e:save() returns the path of the save once it is complete.
std::string SaveEngine(lua_State* L, EngineObject& self) {
  CheckOpen(self);
  if (self.job.save.dir.empty()) {
    throw ConfigError(
        "save: the job names no folder of saves: give save = {dir=...} to it or to job:start");
  }
  SaveReport report;
  RunEngine(State::Of(L), *self.engine, [&] { report = self.engine->Save(); });
  return report.path;
}

/// e:close() closes the engine in any case, and throws if the last save failed.
void CloseEngine(lua_State* L, EngineObject& self) {
  if (!self.engine) return;
  State& state = State::Of(L);
  std::exception_ptr error;
  try {
    if (!self.has_failed) RunEngine(state, *self.engine, [&] { FinishSave(self); });
  } catch (const std::exception&) {
    error = std::current_exception();
  }
  Close(state, std::move(self.engine));
  if (error) std::rethrow_exception(error);
}

std::string ShowEngine(const EngineObject& self) {
  return Str("engine of job \"", self.job.name, "\", ",
             Plural(static_cast<int64_t>(self.plan.stages.size()), "stage"),
             self.engine ? "" : ", closed");
}

PlanObject EnginePlan(const EngineObject& self) { return {self.job, self.plan}; }

/// Warns of keys of the job that `method` ignores. They may be meant for `strata train`.
void TellUnused(const Job& job, const char* method) {
  if (!job.log.empty()) STRATA_LOG(kWarning) << method << " writes no log: `strata train` does";
  if (job.comm_log) STRATA_LOG(kWarning) << method << " shows no comm_log: `strata train` does";
}

/// Throws or warns for keys that do not work with an engine driven step by step.
void CheckDriven(const Job& job) {
  TellUnused(job, "job:start{...}");
  if (!job.trace.empty()) {
    throw ConfigError(
        "job:start{...} writes no trace: job:train{...} does, or give trace=\"none\"");
  }
  const Callbacks& callbacks = job.callbacks;
  const auto is_there = [](const FunctionRef& function) { return function.id >= 0; };
  if (is_there(callbacks.on_step) || is_there(callbacks.on_eval) || is_there(callbacks.on_epoch)) {
    STRATA_LOG(kWarning) << "job:start{...} calls no callbacks: job:train{...} does";
  }
  if (job.loss.type.empty()) {
    throw ConfigError(Str("the job \"", job.name,
                          "\" needs a loss to train: loss = nn.CrossEntropyLoss{} or another"));
  }
}

}  // namespace

EngineObject::~EngineObject() {
  // Ranks in other processes may never get here, so nothing that waits for them is called.
  if (!engine || has_failed || plan.transport != "threads") return;
  try {
    FinishSave(*this);
  } catch (const std::exception& error) {
    STRATA_LOG(kWarning) << ForeignText(error.what());
  }
}

const ObjectType& TypeOf<EngineObject>::Get() {
  static const ObjectType type{
      .name = "engine",
      .methods =
          {{"train_batch", FunctionOf<2, TrainBatch>,
            "engine:train_batch([iterator]): one step; its mean loss"},
           {"eval_batch", FunctionOf<3, EvalBatch>,
            "engine:eval_batch(iterator [, {outputs=true}]): the mean loss, and the last stage's "
            "outputs"},
           {"evaluate", FunctionOf<1, Evaluate>,
            "engine:evaluate(): loss and metrics of data.test, every sample once"},
           {"predict", FunctionOf<2, PredictRows>,
            "engine:predict(x): what the last layer gives for these samples, without targets"},
           {"parameter", FunctionOf<2, ReadParameter, "the name of a parameter">,
            "engine:parameter(name): a copy of a parameter, such as \"3.weight\""},
           {"gradient", FunctionOf<2, ReadGradient, "the name of a parameter">,
            "engine:gradient(name): a parameter's gradient of the last step, as the optimizer "
            "used it: of the mean loss, clipped"},
           {"generate", FunctionOf<-1, Generate>,
            "engine:generate(prompt, ... [, {tokens=100, temperature=0.8, top_k=40, top_p=0.95, "
            "seed=1, tokenizer=, chat=false, stream=true}]): goes on with the texts"},
           {"recut", FunctionOf<2, Recut>,
            "engine:recut{0, 8, 22}: cuts the layers so from now on, with the same bits; says "
            "which layers have gone to which rank"},
           {"save", FunctionOf<1, SaveEngine>,
            "engine:save(): saves the training; the save's path"},
           {"close", FunctionOf<1, CloseEngine>, "engine:close(): ends it"}},
      .properties = {{"plan", Function<EnginePlan>, "engine.plan: what runs", nullptr,
                      GivenType<PlanObject>}},
      .metamethods = {{"__tostring", Function<ShowEngine>}},
      .help = "an engine: a job that runs in this process, step by step"};
  return type;
}

/// job:train{...} runs all remaining steps and returns a list with an entry for each. If data.test
/// was evaluated after a step, its entry has the result as `test`, and texts generated then as
/// `texts`.
Value JobTrain(lua_State* L, const JobObject& self) {
  State& state = State::Of(L);
  Job job = JobForThreads(L, self);
  CheckTrainable(job);
  TellUnused(job, "job:train{...}");
  if (!job.trace.empty()) {
    CheckReplaceable(job.trace, "trace", IsTrace);
    CheckWritable(job.trace);
  }
  const auto started = Start(state, std::move(job));
  StepList steps;
  RunEngine(state, *started->engine, [&] {
    Train(started->job, started->plan, *started->engine, steps, &state.script());
    if (!started->job.trace.empty()) {
      WriteFile(started->job.trace, schedule::ToChromeTrace(started->engine->TakeTrace()));
    }
  });
  Close(state, std::move(started->engine));
  return steps.Take();
}

/// job:start{...} returns an engine to be driven step by step.
std::shared_ptr<EngineObject> JobStart(lua_State* L, const JobObject& self) {
  Job job = JobForThreads(L, self);
  CheckDriven(job);
  std::shared_ptr<EngineObject> started = Start(State::Of(L), std::move(job));
  Tell(started->engine->start());
  return started;
}

}  // namespace strata::lua
