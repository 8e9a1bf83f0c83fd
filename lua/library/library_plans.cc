// Plans as values of Lua: looking at them, comparing, changing, saving; strata.plan.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>

#include "engine/base/gpu.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/plan/cut/cut.h"
#include "engine/plan/plan_text.h"
#include "engine/predict/advice.h"
#include "engine/predict/forecast_text.h"
#include "engine/predict/outlook.h"
#include "engine/predict/saved_plan.h"
#include "engine/predict/summary.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/job/planned_program.h"
#include "engine/spec/layers/layers.h"
#include "lua/core/binding.h"
#include "lua/core/chunk.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/host/measure.h"
#include "lua/library/job_object.h"
#include "lua/library/library.h"
#include "lua/library/program_object.h"
#include "lua/library/topology_object.h"
#include "lua/values/show.h"

namespace strata::lua {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxSavedPlan = size_t{64} << 20;
constexpr size_t kMaxCompared = 500;

/// Whether the line that runs now was typed at the prompt: it may name any file.
bool AtPrompt(lua_State* L) {
  State::Core& core = State::Core::Of(L);
  return core.script.empty() && core.Place(L).starts_with("prompt[");
}

Script* ScriptOf(lua_State* L) { return &State::Core::Of(L).owner.script(); }

/// `like`: a plan that was measured; then others are too, to be compared with it.
PlanOptions OptionsHere(lua_State* L, const Plan* like = nullptr) {
  PlanOptions options = {.gpus = GpuCount(),
                         .measure = MeasureHere(State::Of(L), MeasureIn::kThisProcess)};
  options.wants_seconds = like != nullptr && IsMeasured(*like);
  return options;
}

int PushPlan(lua_State* L, Job job, const Plan* like = nullptr) {
  auto object = std::make_shared<PlanObject>();
  object->plan = strata::PlanJob(job, OptionsHere(L, like), ScriptOf(L));
  object->job = std::move(job);
  PushObject(L, std::move(object));
  return 1;
}

StepForecast ForecastOf(lua_State* L, const PlanObject& self) {
  return ForecastHere(self.job, self.plan, ScriptOf(L));
}

// ---- Looking

int PushSummary(lua_State* L, const Job& job, const Plan& plan) {
  const ModelCosts costs = CostsOf(job, plan, ScriptOf(L));
  return PushShown(L, SummaryValue(plan, costs), SummaryText(plan, costs));
}

int PlanSummary(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  return PushSummary(L, self.job, self.plan);
}

int PlanMemory(lua_State* L) {
  const std::vector<RankMemory> ranks = ForecastOf(L, Self<PlanObject>(L)).memory;
  return PushShown(L, MemoryValue(ranks), MemoryText(ranks));
}

int PlanSchedule(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  const auto micro_batches = static_cast<int>(self.plan.batch.micro_batches);
  PushProgram(L, TrainingProgram(self.job, self.plan, micro_batches, ScriptOf(L)),
              self.plan.tied_stages());
  return 1;
}

Value Numbers(const std::vector<double>& numbers) {
  return Value::List(numbers.begin(), numbers.end());
}

/// Seconds as program:simulate{...} takes them.
int PlanCosts(lua_State* L) {
  const schedule::Costs costs = ForecastOf(L, Self<PlanObject>(L)).action_costs;
  Value value;
  value.Set("F", Numbers(costs.forward)).Set("I", Numbers(costs.input_grad));
  value.Set("W", Numbers(costs.weight_grad));
  if (!costs.backward.empty()) value.Set("B", Numbers(costs.backward));
  if (!costs.recompute.empty()) value.Set("R", Numbers(costs.recompute));
  if (!costs.overlap.empty()) value.Set("overlap", Numbers(costs.overlap));
  value.Set("comm", costs.comm).Set("transfer", Numbers(costs.transfer));
  PushValue(L, value);
  return 1;
}

int PlanForecast(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  const StepForecast forecast = ForecastOf(L, self);
  const Outlook outlook = LookOut(self.job, self.plan, forecast);
  return PushShown(L, ForecastValue(forecast).Set("schedule", OutlookValue(outlook)),
                   Str(ForecastText(forecast), "\n", BubbleText(outlook), MoreMemoryText(outlook)));
}

/// On a nominal machine, as what it is compared with: it would take long to measure all of that.
int PlanAdvice(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  Alternative now = {self.job, "", self.plan};
  if (IsMeasured(self.plan)) now.job = WithCuts(self.job, self.plan.bounds);
  now.forecast = ForecastStep(self.job, self.plan, NominalRates(self.plan.device), ScriptOf(L));
  const Advice advice = Advise(std::move(now), OptionsHere(L), ScriptOf(L));
  return PushShown(L, AdviceValue(advice), AdviceText(advice));
}

// ---- Comparing

const FieldTable& CompareFields() {
  static const FieldTable kFields = {
      Field::Any("methods", "partitions: names, cuts or functions").Optional(),
      Field::Shape("stages", "degrees of pipe").AtLeast(1).Optional(),
      Field::Any("schedules", "names").Optional(),
      Field::Shape("micro_batches", "of the same batch").AtLeast(1).Optional()};
  return kFields;
}

PartitionSpec ToPartition(const Value& value) {
  PartitionSpec partition;
  if (value.is_function()) {
    partition.method = "function";
    partition.function = value.as_function();
  } else if (value.is_list()) {
    partition.method = "cuts";
    for (const int64_t bound : value.as_ints()) partition.bounds.push_back(static_cast<int>(bound));
  } else {
    partition.method = value.as_string();
  }
  return partition;
}

/// The elements of an option, or one null where it was left out.
Value::List EachOf(const Value& option) {
  if (option.is_null()) return {Value()};
  if (!option.is_list()) return {option};
  if (option.as_list().empty()) throw ConfigError("compare: a list is empty");
  return option.as_list();
}

/// `methods`: a list of methods, each a name, a function or a list of cuts.
Value::List Methods(const Value& option) {
  const bool is_cuts = option.is_list() && !option.as_list().empty() &&
                       std::ranges::all_of(option.as_list(), &Value::is_number);
  return is_cuts ? Value::List{option} : EachOf(option);
}

Job Changed(const PlanObject& self, const Value& method, const Value& stages, const Value& schedule,
            const Value& micro_batches) {
  Job job = self.job;
  if (!method.is_null()) job.partition = ToPartition(method);
  if (!stages.is_null()) job.parallel.pipe = static_cast<int>(stages.as_int());
  if (!schedule.is_null()) job.schedule = {schedule.as_string(), "", {}};
  if (micro_batches.is_null()) return job;
  const int64_t count = micro_batches.as_int(), size = self.plan.batch.size;
  if (size % count != 0) {
    throw ConfigError(Str("compare: ", count, " micro-batches do not divide the batch of ", size));
  }
  job.batch = {size, count, size / count};
  return job;
}

/// plan:compare{methods={...}, stages={...}, schedules={...}, micro_batches={...}}
int PlanCompare(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  Call call = CallOf(ToValue(L, 2, "compare"));
  call.subject = "compare";
  call.noun = "option";
  const Value options = Canonicalize(CompareFields(), call);
  PlanOptions options_here = OptionsHere(L, &self.plan);
  for (const Value& method : Methods(options["methods"])) {  // all are measured, or none
    options_here.wants_seconds |=
        method.is_string() &&
        partition::MethodGoesBy(ToPartition(method)) == partition::GoesBy::kTime;
  }
  std::vector<Alternative> alternatives;
  for (const Value& stages : EachOf(options["stages"])) {
    for (const Value& schedule : EachOf(options["schedules"])) {
      for (const Value& micro_batches : EachOf(options["micro_batches"])) {
        for (const Value& method : Methods(options["methods"])) {
          State::Core::Of(L).limits.Poll();
          if (alternatives.size() >= kMaxCompared) {
            throw ConfigError(Str("compare: more than ", kMaxCompared, " ways to compare"));
          }
          Job job = Changed(self, method, stages, schedule, micro_batches);
          alternatives.push_back(TryJobHere(std::move(job), options_here, ScriptOf(L)));
        }
      }
    }
  }
  const bool none = std::ranges::none_of(alternatives, [](auto& a) { return a.trouble.empty(); });
  if (none) throw ConfigError(alternatives[0].trouble);
  return PushShown(L, CompareValue(alternatives), CompareText(alternatives));
}

// ---- Changing

/// A layer's index, from its index or its path.
int LayerArgument(lua_State* L, int index, const Plan& plan) {
  const auto count = static_cast<int64_t>(plan.layers.size());
  if (lua_type(L, index) == LUA_TNUMBER) {
    const int64_t layer = IntArgument(L, index, "a layer's index");
    if (layer >= 0 && layer < count) return static_cast<int>(layer);
    throw ConfigError(Str("there is no layer ", layer, "; they are 0 to ", count - 1));
  }
  const std::string path = TextArgument(L, index, "a layer's index or name");
  std::vector<std::string> paths;
  for (const LayerPlan& layer : plan.layers) {
    if (layer.path == path) return layer.index;
    paths.push_back(layer.path);
  }
  throw ConfigError(Str("there is no layer \"", path, "\"", DidYouMean(path, paths)));
}

/// The bounds with the layer, and those between it and the stage, on a neighbouring stage.
std::vector<int> MovedBounds(const Plan& plan, int layer, int64_t to) {
  const int from = plan.layers[static_cast<size_t>(layer)].stage;
  const auto stages = static_cast<int64_t>(plan.stages.size());
  if (to < 0 || to >= stages) {
    throw ConfigError(Str("there is no stage ", to, "; they are 0 to ", stages - 1));
  }
  if (to == from) throw ConfigError(Str("layer ", layer, " is on stage ", to, " already"));
  if (std::abs(to - from) > 1) {
    throw ConfigError(Str("layer ", layer, " is on stage ", from,
                          " and can move to a neighbour of it, not to ", to,
                          "; go there stage by stage"));
  }
  std::vector<int> bounds = plan.bounds;
  bounds[static_cast<size_t>(std::max<int64_t>(from, to))] = to > from ? layer : layer + 1;
  const auto stage = static_cast<size_t>(from);
  if (bounds[stage] == bounds[stage + 1]) {
    throw ConfigError(Str("stage ", from, " would be empty without layer ", layer,
                          to > from ? " and those behind it" : " and those before it"));
  }
  return bounds;
}

/// plan:move(layer, stage)
int PlanMove(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  const int layer = LayerArgument(L, 2, self.plan);
  const std::vector<int> bounds = MovedBounds(self.plan, layer, IntArgument(L, 3, "a stage"));
  return PushPlan(L, WithCuts(self.job, bounds), &self.plan);
}

// ---- Files

/// A file that the running line names. Lines typed at the prompt may name any; scripts only files
/// below their folder, not hidden ones.
std::string FileToWrite(lua_State* L, const std::string& path, std::string_view what) {
  const fs::path asked(path);
  if (asked.extension() != ".plan" && asked.extension() != ".json") {
    throw ConfigError(
        Str(what, ": the file's name must end in .plan or .json, not \"", path, "\""));
  }
  if (AtPrompt(L)) return path;
  for (const fs::path& part : asked) {
    if (part.string().starts_with('.')) {
      throw ConfigError(Str(what, " must be a file below the script's folder that is not hidden, ",
                            "not \"", path, "\""));
    }
  }
  const std::string folder = State::Core::Of(L).CallingChunk(L).folder;
  if (!asked.has_parent_path()) return (fs::path(folder) / asked).string();
  const std::string parent = PathWithin(folder, asked.parent_path().string(), what);
  return (fs::path(parent) / asked.filename()).string();
}

/// Only a saved plan may be replaced; a link is not followed.
void CheckReplaceable(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::symlink_status(path, error);
  if (!fs::exists(status)) return;
  const bool replaceable =
      fs::is_regular_file(status) && IsSavedPlan(ReadText(path, "plan:save", kMaxSavedPlan));
  if (!replaceable) throw ConfigError(Str(path, " is there and is no saved plan; it stays"));
}

/// plan:save(file): whole or not at all.
int PlanSave(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  const std::string path = FileToWrite(L, TextArgument(L, 2, "a file's path"), "plan:save");
  CheckReplaceable(path);
  const std::string part = Str(path, ".", ::getpid(), ".part");
  try {
    WriteSyncedFile(part, ToText(SavedPlanOf(self.job, self.plan)));
    if (std::rename(part.c_str(), path.c_str()) != 0) throw WorldError("cannot rename " + part);
  } catch (const WorldError&) {
    std::remove(part.c_str());
    throw;
  }
  return 0;
}

/// strata.plan(file)
int LoadPlan(lua_State* L) {
  const std::string path = TextArgument(L, 1, "a file's path");
  const std::string folder = State::Core::Of(L).CallingChunk(L).folder;
  const std::string file = AtPrompt(L) ? path : PathWithin(folder, path, "strata.plan");
  const std::string text = ReadText(file, "strata.plan", kMaxSavedPlan);
  try {
    PushObject(L, std::make_shared<SavedPlan>(ParseSavedPlan(text)));
  } catch (const ConfigError& error) {
    throw ConfigError(Str(path, ": ", error.what()));
  }
  return 1;
}

int SavedField(lua_State* L) {
  const auto& self = Self<SavedPlan>(L);
  const std::string name = TextArgument(L, 2, "a field");
  if (name == "bounds") {
    PushValue(L, Value::IntList({self.bounds.begin(), self.bounds.end()}));
  } else if (name == "keys") {
    PushValue(L, KeysOf(self));
  } else if (name == "name") {
    PushText(L, self.name);
  } else {
    return 0;
  }
  return 1;
}

int SavedFieldNames(lua_State* L) {
  PushValue(L, Value::List{"bounds", "keys", "name"});
  return 1;
}

int DescribeSavedField(lua_State* L) {
  const std::string name = TextArgument(L, 2, "a field");
  PushText(L, name == "bounds" ? "saved.bounds: the cuts"
              : name == "keys" ? "saved.keys: what job:plan{...} would take"
                               : "saved.name: of the job");
  return 1;
}

int ShowSaved(lua_State* L) {
  PushText(L, SavedPlanText(Self<SavedPlan>(L)));
  return 1;
}

/// plan:diff(other): a plan, or a saved one.
int PlanDiff(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  const SavedPlan ours = SavedPlanOf(self.job, self.plan);
  if (const auto saved = ObjectAt<SavedPlan>(L, 2)) {
    return PushShown(L, DifferenceValue(ours, *saved), DifferenceText(ours, *saved));
  }
  const auto other = ObjectAt<PlanObject>(L, 2);
  if (!other) ThrowExpected(L, 2, "a plan, or what strata.plan(file) gives");
  const SavedPlan theirs = SavedPlanOf(other->job, other->plan);
  std::string text = DifferenceText(ours, theirs);
  Value value = DifferenceValue(ours, theirs);
  const StepForecast before = ForecastOf(L, self), after = ForecastOf(L, *other);
  value.Set("step", Value::MakeMap({{"from", before.step()}, {"to", after.step()}}));
  text += Str("\n", ForecastText(before), "\nafter:     ", ForecastText(after).substr(11));
  return PushShown(L, value, text);
}

// ---- The type

int ShowPlan(lua_State* L) {
  const auto& self = Self<PlanObject>(L);
  std::string text = PlanText(self.plan);
  try {
    text += ForecastText(ForecastOf(L, self));
  } catch (const ConfigError&) {  // The layers stand all the same.
  }
  PushText(L, std::string_view(text).substr(0, text.find_last_not_of('\n') + 1));
  return 1;
}

int PlanField(lua_State* L) {
  const Value fields = PlanValue(Self<PlanObject>(L).plan);
  PushValue(L, fields[TextArgument(L, 2, "a field")]);
  return 1;
}

int PlanFieldNames(lua_State* L) {
  Value::List names;
  static const Value fields = PlanValue(Plan());  // all plans have the same
  for (const auto& [name, value] : fields.as_map()) names.emplace_back(name);
  PushValue(L, names);
  return 1;
}

int DescribePlanField(lua_State* L) {
  static const std::map<std::string, const char*, std::less<>> kHelp = {
      {"parameters", "plan.parameters: trainable elements of the model, each tied one once"},
      {"bounds", "plan.bounds: the cuts: stage s has the layers from bounds[s+1] to bounds[s+2]-1"},
      {"layers", "plan.layers: of each layer index, type, path, parameters, output, stage, ..."},
      {"stages", "plan.stages: of each stage its rank, layers, parameters, input and output"},
      {"parallel", "plan.parallel: the degrees pipe, data and model"},
      {"batch", "plan.batch: size, micro_batches and micro_batch_size of a replica"},
  };
  const auto found = kHelp.find(TextArgument(L, 2, "a field"));
  if (found == kHelp.end()) return 0;
  PushText(L, found->second);
  return 1;
}

int PlanTopology(lua_State* L) {
  PushObject(L, std::make_shared<Topology>(Self<PlanObject>(L).plan.topology));
  return 1;
}

}  // namespace

const ObjectType& TypeOf<PlanObject>::Get() {
  static const ObjectType type{
      "plan",
      {{"svg", Bound<PlanSvg, 1>,
        "plan:svg(): the timeline of all ranks as an SVG drawing, predicted: a text"},
       {"html", Bound<PlanHtml, 1>,
        "plan:html(): a page with timeline, memory and cuts, predicted: a text"},
       {"summary", Bound<PlanSummary, 1>,
        "plan:summary(): every layer's output, parameters, FLOPs, activations, weights and stage"},
       {"forecast", Bound<PlanForecast, 1>,
        "plan:forecast(): step, bubble, slowest stage, balance and memory, before anything runs; "
        "and "
        "how near its schedule is to the best"},
       {"advice", Bound<PlanAdvice, 1>,
        "plan:advice(): what limits the step, and the three cheapest remedies, each simulated"},
       {"compare", Bound<PlanCompare, 2>,
        "plan:compare{methods={...}, stages={...}, schedules={...}, micro_batches={...}}: side by "
        "side\nEach list is tried with each other; what is left out stays as it is:\n"
        "plan:compare{methods={\"uniform\", \"parameters\", {0, 5, 10}}, stages={2, 3}}",
        CompareFields},
       {"move", Bound<PlanMove, 3>,
        "plan:move(layer, stage): a plan with the layer on the neighbouring stage\n"
        "The layers between it and that stage go with it.",
        nullptr, GivenType<PlanObject>},
       {"diff", Bound<PlanDiff, 2>,
        "plan:diff(other): what another plan, or a saved one, decides differently"},
       {"save", Bound<PlanSave, 2>,
        "plan:save(file): cuts, degrees, schedule and batch as a file, for strata.plan(file)\n"
        "The name ends in .plan or .json. A script's files lie below its folder; only saved plans "
        "are replaced."},
       {"memory", Bound<PlanMemory, 1>,
        "plan:memory(): bytes of each rank: weights, gradients, optimizer, activations, buffers"},
       {"costs", Bound<PlanCosts, 1>,
        "plan:costs(): seconds per stage, as plan:schedule():gantt(plan:costs()) takes them"},
       {"schedule", Bound<PlanSchedule, 1>,
        "plan:schedule(): what every rank does in a step: a program", nullptr, ProgramType}},
      {{"topology", Bound<PlanTopology>, "plan.topology: the grid of ranks", nullptr,
        GivenType<Topology>},
       {"program", Bound<PlanSchedule>, "plan.program: plan:schedule()", nullptr, ProgramType}},
      {{"__tostring", Bound<ShowPlan>}},
      Bound<PlanField>,
      Bound<PlanFieldNames>,
      nullptr,
      "a plan: a job placed on ranks, before anything runs",
      Bound<DescribePlanField>};
  return type;
}

const ObjectType& TypeOf<SavedPlan>::Get() {
  static const ObjectType type{"saved plan",
                               {},
                               {},
                               {{"__tostring", Bound<ShowSaved>}},
                               Bound<SavedField>,
                               Bound<SavedFieldNames>,
                               nullptr,
                               "a saved plan: job:plan(saved) and job:train(saved) follow it",
                               Bound<DescribeSavedField>};
  return type;
}

/// job:plan{...}, job:plan(saved)
int JobPlan(lua_State* L) { return PushPlan(L, ChangedJob(L, Self<JobObject>(L), 2)); }

/// job:summary([keys])
int JobSummary(lua_State* L) {
  const Job job = ChangedJob(L, Self<JobObject>(L), 2);
  return PushSummary(L, job, strata::PlanJob(job, OptionsHere(L), ScriptOf(L)));
}

void AddPlans(lua_State* L) {
  const NamedFunction functions[] = {
      {"plan", Bound<LoadPlan, 1>,
       "strata.plan(file): what plan:save(file) wrote; job:plan(saved) follows it", nullptr,
       GivenType<SavedPlan>}};
  SetFunctions(L, functions);
}

}  // namespace strata::lua
