// Plans as Lua values: inspecting, comparing, changing and saving them; strata.plan.

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>

#include "engine/base/machine/gpu.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/forecast/forecast_text.h"
#include "engine/forecast/outlook.h"
#include "engine/forecast/planned_program.h"
#include "engine/forecast/saved_plan.h"
#include "engine/forecast/summary.h"
#include "engine/layers/layer_types.h"
#include "engine/picture/page.h"
#include "engine/picture/plan_picture.h"
#include "engine/picture/svg.h"
#include "engine/plan/cut/cut.h"
#include "engine/plan/plan_text.h"
#include "engine/schedule/generators/generators.h"
#include "engine/search/advice.h"
#include "engine/search/plan_job.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"
#include "lua/core/file_access.h"
#include "lua/core/notes.h"
#include "lua/host/measure.h"
#include "lua/library/job_object.h"
#include "lua/library/library.h"
#include "lua/library/program_object.h"
#include "lua/library/show.h"
#include "lua/library/topology_object.h"

namespace strata::lua {
namespace {

constexpr size_t kMaxSavedPlan = size_t{64} << 20;
constexpr size_t kMaxCompared = 500;

Script* ScriptOf(lua_State* L) { return &State::Core::Of(L).owner.script(); }

/// The options for planning here. If `like` is a plan with seconds, the seconds of new plans come
/// from the same source, so that the plans can be compared.
PlanOptions OptionsHere(lua_State* L, const Plan* like = nullptr) {
  PlanOptions options = {.gpus = GpuCount(),
                         .measure = MeasureHere(State::Of(L), MeasureIn::kThisProcess)};
  options.wants_rates = like && like->costs && like->costs->has_seconds();
  return options;
}

std::shared_ptr<PlanObject> MakePlan(lua_State* L, Job job, const Plan* like = nullptr) {
  Plan plan = strata::PlanJob(job, OptionsHere(L, like), ScriptOf(L));
  return std::make_shared<PlanObject>(PlanObject{std::move(job), std::move(plan)});
}

StepForecast ForecastOf(lua_State* L, const PlanObject& self) {
  return ForecastHere(self.job, self.plan, ScriptOf(L));
}

// ---- Inspecting

Shown Summary(lua_State* L, const PlanObject& self) {
  const ModelCosts costs = CostsOf(self.job, self.plan, ScriptOf(L));
  return {SummaryValue(self.plan, costs), SummaryText(self.plan, costs)};
}

Shown Memory(lua_State* L, const PlanObject& self) {
  const std::vector<RankMemory> ranks = ForecastOf(L, self).memory;
  return {MemoryValue(ranks), MemoryText(ranks)};
}

LuaProgram Schedule(lua_State* L, const PlanObject& self) {
  const auto micro_batches = static_cast<int>(self.plan.batch.micro_batches);
  return {TrainingProgram(self.job, self.plan, micro_batches, ScriptOf(L)),
          self.plan.tied_stages()};
}

Value Numbers(const std::vector<double>& numbers) {
  return Value::List(numbers.begin(), numbers.end());
}

/// plan:costs(): the seconds in the form that program:simulate{...} takes.
Value Costs(lua_State* L, const PlanObject& self) {
  const schedule::Costs costs = ForecastOf(L, self).action_costs;
  Value value;
  value.Set("F", Numbers(costs.forward)).Set("I", Numbers(costs.input_grad));
  value.Set("W", Numbers(costs.weight_grad));
  if (!costs.backward.empty()) value.Set("B", Numbers(costs.backward));
  if (!costs.recompute.empty()) value.Set("R", Numbers(costs.recompute));
  if (!costs.overlap.empty()) value.Set("overlap", Numbers(costs.overlap));
  return value.Set("comm", costs.comm)
      .Set("transfer", Numbers(costs.transfer))
      .Set("latency", Numbers(costs.latency));
}

Shown Forecast(lua_State* L, const PlanObject& self) {
  const StepForecast forecast = ForecastOf(L, self);
  const Outlook outlook = LookOut(self.job, self.plan, forecast);
  return {ForecastValue(forecast).Set("schedule", OutlookValue(outlook)),
          Str(ForecastText(forecast), "\n", BubbleText(outlook), MoreMemoryText(outlook))};
}

/// plan:advice(). All plans that are compared, this one included, get the rates of a nominal
/// machine, since measuring them all would take long.
Shown AdviceOn(lua_State* L, const PlanObject& self) {
  Alternative now = {Decided(self.job, self.plan), "", self.plan};
  if (self.plan.costs && self.plan.costs->has_seconds()) {
    now.job = WithCuts(std::move(now.job), self.plan.bounds);
  }
  now.forecast = ForecastStep(self.job, self.plan, NominalRates(self.plan.device), ScriptOf(L));
  const Advice advice = Advise(std::move(now), OptionsHere(L), ScriptOf(L));
  return {AdviceValue(advice), AdviceText(advice)};
}

// ---- Comparing

Field SchedulesField() {
  Field field = Field::Any("schedules", "names").Optional();
  field.choices = schedule::GeneratorNames();
  return field;
}

const FieldTable& CompareFields() {
  static const FieldTable kFields = {
      Field::Any("methods", "partitions: names, cuts or functions").Optional(),
      Field::Shape("stages", "degrees of pipe").AtLeast(1).Optional(), SchedulesField(),
      Field::Shape("micro_batches", "of the same batch").AtLeast(1).Optional()};
  return kFields;
}

PartitionSpec ToPartition(const Value& value, const Job& job) {
  PartitionSpec partition;
  if (value.is_function()) {
    partition.method = "function";
    partition.function = value.as_function();
  } else if (value.is_list()) {
    partition.method = "cuts";
    partition.bounds = CutNames(job.layers).Positions(value, "compare");
  } else {
    partition.method = value.as_string();
  }
  return partition;
}

/// The elements of an option's list; a single null if the option was left out.
Value::List EachOf(const Value& option) {
  if (option.is_null()) return {Value()};
  if (!option.is_list()) return {option};
  if (option.as_list().empty()) throw ConfigError("compare: a list is empty");
  return option.as_list();
}

/// The elements of `methods`: a list of methods, each of them a name, a function or a list of cuts.
/// A list of numbers is one list of cuts.
Value::List Methods(const Value& option) {
  const bool is_cuts = option.is_list() && !option.as_list().empty() &&
                       std::ranges::all_of(option.as_list(), &Value::is_number);
  return is_cuts ? Value::List{option} : EachOf(option);
}

Job Changed(const PlanObject& self, const Value& method, const Value& stages, const Value& schedule,
            const Value& micro_batches) {
  Job job = self.job;
  if (!method.is_null()) job.partition = ToPartition(method, job);
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
Shown Compare(lua_State* L, const PlanObject& self, const Value& given) {
  const Value options = OptionsOf(given, CompareFields(), "compare");
  PlanOptions options_here = OptionsHere(L, &self.plan);
  for (const Value& method : Methods(options["methods"])) {  // measure for all methods, or for none
    options_here.wants_seconds |=
        method.is_string() &&
        partition::MethodGoesBy(ToPartition(method, self.job)) == partition::GoesBy::kTime;
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
  return {CompareValue(alternatives), CompareText(alternatives)};
}

// ---- Changing

/// The positions of a layer, or the position of one of its parts, in the plan's list of layers.
struct Places {
  int begin, end;
};

/// Reads a layer from its index (4.1 is part 1 of layer 4) or its path.
Places LayerArgument(lua_State* L, int index, const Plan& plan) {
  const CutNames names = CutNamesOf(plan);
  const auto whole = [&](int begin) {
    int end = begin + 1;
    while (names.IsInside(end)) ++end;
    return Places{begin, end};
  };
  if (lua_type(L, index) == LUA_TNUMBER) {
    const Value layer = ToValue(L, index, "a layer's index");
    const std::optional<int> place = names.Find(layer);
    if (!place || *place == std::ssize(plan.layers)) {
      throw ConfigError(
          Str("there is no layer ", layer.ToLua(), "; they are 0 to ", names.layers() - 1));
    }
    return layer.is_int() ? whole(*place) : Places{*place, *place + 1};
  }
  const std::string path = TextArgument(L, index, "a layer's index or name");
  std::vector<std::string> paths;
  for (const LayerPlan& layer : plan.layers) {
    if (WholePath(layer) == path) return whole(layer.index);
    if (layer.path == path) return {layer.index, layer.index + 1};
    paths.push_back(layer.path);
  }
  throw ConfigError(Str("there is no layer \"", path, "\"", DidYouMean(path, paths)));
}

/// The stage bounds after the layer has moved to a neighbouring stage, together with all layers
/// between it and that stage.
std::vector<int> MovedBounds(const Plan& plan, const Places& layer, int64_t to) {
  const int first = plan.layers[static_cast<size_t>(layer.begin)].stage;
  const int last = plan.layers[static_cast<size_t>(layer.end) - 1].stage;
  const int from = first == to ? last : first;
  const std::string name = "layer " + CutNamesOf(plan).Range(layer.begin, layer.end);
  const auto stages = static_cast<int64_t>(plan.stages.size());
  if (to < 0 || to >= stages) {
    throw ConfigError(Str("there is no stage ", to, "; they are 0 to ", stages - 1));
  }
  if (to == from) throw ConfigError(Str(name, " is on stage ", to, " already"));
  if (std::abs(to - from) > 1) {
    throw ConfigError(Str(name, " is on stage ", from,
                          " and can move to a neighbour of it, not to ", to,
                          "; go there stage by stage"));
  }
  std::vector<int> bounds = plan.bounds;
  bounds[static_cast<size_t>(std::max<int64_t>(from, to))] = to > from ? layer.begin : layer.end;
  const auto stage = static_cast<size_t>(from);
  if (bounds[stage] >= bounds[stage + 1]) {
    throw ConfigError(Str("stage ", from, " would be empty without ", name,
                          to > from ? " and those behind it" : " and those before it"));
  }
  return bounds;
}

/// plan:move(layer, stage)
std::shared_ptr<PlanObject> Move(lua_State* L, const PlanObject& self) {
  const Places layer = LayerArgument(L, 2, self.plan);
  const std::vector<int> bounds = MovedBounds(self.plan, layer, IntArgument(L, 3, "a stage"));
  return MakePlan(L, WithCuts(Decided(self.job, self.plan), bounds), &self.plan);
}

// ---- Files

/// plan:save(file). The file is written completely or not at all.
void Save(lua_State* L, const PlanObject& self, const std::string& file) {
  const std::string path = WritablePath(L, file, {".plan", ".json"}, "plan:save");
  CheckReplaceable(path, "saved plan", [](const std::string& there) {
    return IsSavedPlan(ReadText(there, "plan:save", kMaxSavedPlan));
  });
  const std::string part = Str(path, ".", ::getpid(), ".part");
  try {
    WriteSyncedFile(part, ToText(SavedPlanOf(self.job, self.plan)));
    if (std::rename(part.c_str(), path.c_str()) != 0) throw WorldError("cannot rename " + part);
  } catch (const WorldError&) {
    std::remove(part.c_str());
    throw;
  }
}

/// strata.plan(file)
SavedPlan LoadPlan(lua_State* L, const std::string& path) {
  const std::string file = AtPrompt(L) ? path : PathWithin(CallingFolder(L), path, "strata.plan");
  const std::string text = ReadText(file, "strata.plan", kMaxSavedPlan);
  try {
    return ParseSavedPlan(text);
  } catch (const ConfigError& error) {
    throw ConfigError(Str(path, ": ", error.what()));
  }
}

/// plan:diff(other) compares with another plan, or with a saved one.
Shown Difference(lua_State* L, const PlanObject& self) {
  const SavedPlan ours = SavedPlanOf(self.job, self.plan);
  if (const auto saved = ObjectAt<SavedPlan>(L, 2)) {
    return {DifferenceValue(ours, *saved), DifferenceText(ours, *saved)};
  }
  const auto other = ObjectAt<PlanObject>(L, 2);
  if (!other) ThrowExpected(L, 2, "a plan, or what strata.plan(file) gives");
  const SavedPlan theirs = SavedPlanOf(other->job, other->plan);
  std::string text = DifferenceText(ours, theirs);
  Value value = DifferenceValue(ours, theirs);
  const StepForecast before = ForecastOf(L, self), after = ForecastOf(L, *other);
  value.Set("step", Value::MakeMap({{"from", before.step()}, {"to", after.step()}}));
  text += Str("\n", ForecastText(before), "\nafter:     ", ForecastText(after).substr(11));
  return {value, text};
}

// ---- The type

std::string ShowPlan(lua_State* L, const PlanObject& self) {
  std::string text = PlanText(self.plan);
  try {
    text += ForecastText(ForecastOf(L, self));
  } catch (const ConfigError&) {  // the plan is shown without a forecast
  }
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

Value PlanField(const PlanObject& self, const std::string& name) {
  return PlanValue(self.plan)[name];
}

std::vector<std::string> PlanFieldNames(lua_State*) {
  std::vector<std::string> names;
  static const Value fields = PlanValue(Plan());  // all plans have the same fields
  for (const auto& [name, value] : fields.as_map()) names.push_back(name);
  return names;
}

std::optional<std::string> DescribePlanField(lua_State* L) {
  static const std::map<std::string, const char*, std::less<>> kHelp = {
      {"parameters", "plan.parameters: trainable elements of the model, each tied one once"},
      {"bounds", "plan.bounds: the cuts: stage s has the layers from bounds[s+1] to bounds[s+2]-1"},
      {"layers", "plan.layers: of each layer index, type, path, parameters, output, stage, ..."},
      {"stages", "plan.stages: of each stage its rank, layers, parameters, input and output"},
      {"parallel", "plan.parallel: the degrees pipe, data and model"},
      {"batch", "plan.batch: size, micro_batches and micro_batch_size of a replica"},
  };
  const auto found = kHelp.find(TextArgument(L, 2, "a field"));
  if (found == kHelp.end()) return std::nullopt;
  return found->second;
}

Topology TopologyOf(const PlanObject& self) { return self.plan.topology; }

picture::Picture PictureOf(lua_State* L, const PlanObject& self) {
  return picture::PlanPicture(self.job, self.plan, ForecastOf(L, self));
}

// Pictures are returned as texts, since scripts write no pictures; `strata plan --svg=F --html=F`
// does.

std::string Svg(lua_State* L, const PlanObject& self) { return picture::ToSvg(PictureOf(L, self)); }

std::string Html(lua_State* L, const PlanObject& self) {
  return picture::ToHtml(PictureOf(L, self));
}

}  // namespace

const ObjectType& TypeOf<PlanObject>::Get() {
  static const ObjectType type{
      .name = "plan",
      .methods =
          {{"svg", FunctionOf<1, Svg>,
            "plan:svg(): the timeline of all ranks as an SVG drawing, predicted: a text"},
           {"html", FunctionOf<1, Html>,
            "plan:html(): a page with timeline, memory and cuts, predicted: a text"},
           {"summary", FunctionOf<1, Summary>,
            "plan:summary(): every layer's output, parameters, FLOPs, activations, weights and "
            "stage"},
           {"forecast", FunctionOf<1, Forecast>,
            "plan:forecast(): step, bubble, slowest stage, balance and memory, before anything "
            "runs; and how near its schedule is to the best"},
           {"advice", FunctionOf<1, AdviceOn>,
            "plan:advice(): what limits the step, and the three cheapest remedies, each simulated"},
           {"compare", FunctionOf<2, Compare, "the options">,
            "plan:compare{methods={...}, stages={...}, schedules={...}, micro_batches={...}}: side "
            "by side\nEach list is tried with each other; what is left out stays as it is:\n"
            "plan:compare{methods={\"uniform\", \"parameters\", {0, 5, 10}}, stages={2, 3}}",
            CompareFields},
           {"move", FunctionOf<3, Move>,
            "plan:move(layer, stage): a plan with the layer on the neighbouring stage\n"
            "The layers between it and that stage go with it.",
            nullptr, GivenType<PlanObject>},
           {"diff", FunctionOf<2, Difference>,
            "plan:diff(other): what another plan, or a saved one, decides differently"},
           {"save", FunctionOf<2, Save, "a file's path">,
            "plan:save(file): cuts, degrees, schedule and batch as a file, for strata.plan(file)\n"
            "The name ends in .plan or .json. A script's files lie below its folder; only saved "
            "plans are replaced."},
           {"memory", FunctionOf<1, Memory>,
            "plan:memory(): bytes of each rank: weights, gradients, optimizer, activations, "
            "buffers"},
           {"costs", FunctionOf<1, Costs>,
            "plan:costs(): seconds per stage, as plan:schedule():gantt(plan:costs()) takes them"},
           {"schedule", FunctionOf<1, Schedule>,
            "plan:schedule(): what every rank does in a step: a program", nullptr,
            GivenType<LuaProgram>}},
      .properties = {{"topology", Function<TopologyOf>, "plan.topology: the grid of ranks", nullptr,
                      GivenType<Topology>},
                     {"program", Function<Schedule>, "plan.program: plan:schedule()", nullptr,
                      GivenType<LuaProgram>}},
      .metamethods = {{"__tostring", Function<ShowPlan>}},
      .lookup = Function<PlanField, "a field">,
      .list_names = Function<PlanFieldNames>,
      .help = "a plan: a job placed on ranks, before anything runs",
      .describe = Function<DescribePlanField>};
  return type;
}

const ObjectType& TypeOf<SavedPlan>::Get() {
  static const ObjectType type{
      .name = "saved plan",
      .properties = {{"bounds",
                      Function<[](const SavedPlan& saved) { return KeysOf(saved)["partition"]; }>,
                      "saved.bounds: the cuts"},
                     {"keys", Function<[](const SavedPlan& saved) { return KeysOf(saved); }>,
                      "saved.keys: what job:plan{...} would take"},
                     {"name", Function<&SavedPlan::name>, "saved.name: of the job"}},
      .metamethods = {{"__tostring",
                       Function<[](const SavedPlan& saved) { return SavedPlanText(saved); }>}},
      .help = "a saved plan: job:plan(saved) and job:train(saved) follow it"};
  return type;
}

std::shared_ptr<PlanObject> JobPlan(lua_State* L, const JobObject& self) {
  return MakePlan(L, ChangedJob(L, self, 2));
}

Shown JobSummary(lua_State* L, const JobObject& self) { return Summary(L, *JobPlan(L, self)); }

void AddPlans(lua_State* L) {
  const NamedFunction functions[] = {
      {"plan", FunctionOf<1, LoadPlan, "a file's path">,
       "strata.plan(file): what plan:save(file) wrote; job:plan(saved) follows it", nullptr,
       GivenType<SavedPlan>}};
  SetFunctions(L, functions);
}

}  // namespace strata::lua
