// strata.job, strata.options, strata.load, and jobs as Lua objects.

#include "engine/base/text.h"
#include "engine/job/flags/overrides.h"
#include "engine/job/job_fields.h"
#include "engine/layers/parts.h"
#include "lua/core/bind.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"
#include "lua/core/file_access.h"
#include "lua/core/globals.h"
#include "lua/library/dataset_object.h"
#include "lua/library/job_object.h"
#include "lua/library/key_help.h"
#include "lua/library/layer_object.h"
#include "lua/library/library.h"

namespace strata::lua {
namespace {

/// Removes a key from the job's table and pushes its value.
void TakeKey(lua_State* L, int table, const char* key) {
  lua_getfield(L, table, key);
  lua_pushnil(L);
  lua_setfield(L, table, key);
}

/// Pushes a copy, one level deep, of the plain table at `index`.
int CopyTable(lua_State* L, int index) {
  lua_newtable(L);
  for (lua_pushnil(L); lua_next(L, index) != 0;) {
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -4);
  }
  return lua_gettop(L);
}

/// Throws ConfigError for an unknown key. This comes first: if "layers" is misspelt, the error
/// should not be that "layers" is missing.
void CheckKeyNames(lua_State* L, int table) {
  const std::vector<std::string> known = FieldNames(JobFields());
  for (const std::string& name : ShapeOf(L, table).names) {
    const bool is_path = name.find('.') != std::string::npos;
    if (is_path || FindField(JobFields(), name) != nullptr) continue;
    throw ConfigError(Str("the job has no key \"", name, "\"", KeyHint(name, known, 0)));
  }
}

/// Calls functions of the script, for keys whose values they compute.
CallFunction CallIn(lua_State* L) {
  Script& script = State::Of(L).script();
  return [&script](const FunctionRef& function, const Value::List& arguments) {
    return script.Call(function, arguments);
  };
}

RawJob ToRawJob(lua_State* L, int index) {
  RawJob raw;
  raw.script = State::Core::Of(L).script;
  raw.where = State::Core::Of(L).Place(L);
  raw.examine = ExamineIn(L, raw.script);
  raw.call = CallIn(L);
  const int keys = CopyTable(L, index);
  CheckKeyNames(L, keys);
  TakeKey(L, keys, "layers");
  if (lua_isnil(L, -1)) throw ConfigError("the job has no layers");
  raw.layers = ToRawLayer(L, -1, "layers");
  lua_getfield(L, keys, "loss");
  if (const auto loss = ObjectAt<LayerSpec>(L, -1)) {
    raw.loss = *loss;
    TakeKey(L, keys, "loss");
  } else if (const auto constructor = ObjectAt<LayerConstructor>(L, -1)) {
    throw ConfigError(
        Str("loss is the bare ", constructor->name, "; write ", constructor->name, "{}"));
  }
  raw.keys = ToValue(L, keys, "the job");
  if (raw.keys.is_list() && raw.keys.as_list().empty()) raw.keys = Value::MakeMap();  // no others
  lua_settop(L, keys - 1);
  return raw;
}

/// strata.job{...}
std::shared_ptr<JobObject> MakeJob(lua_State* L) {
  if (!IsPlainTable(L, 1)) ThrowExpected(L, 1, "a table: strata.job{layers={...}, ...}");
  auto object = std::make_shared<JobObject>();
  object->raw = ToRawJob(L, 1);
  if (const Settings* settings = State::Core::Of(L).settings) object->overrides = settings->job();
  object->job = BuildJob(object->raw, object->overrides);
  CheckMayRead(L, object->job);
  object->raw.examine = {};  // both are only valid during this call
  object->raw.call = {};
  return object;
}

/// strata.options{name=default, ...}
Pushed Options(lua_State* L) {
  if (!IsPlainTable(L, 1)) ThrowExpected(L, 1, "a table: strata.options{name=default, ...}");
  State::Core& core = State::Core::Of(L);
  TableSettings none({}, "", "");
  Settings& settings = core.settings ? *core.settings : none;
  PushValue(L, settings.TakeOptions(ToValue(L, 1, "strata.options"), core.Place(L)));
  MakeOptionsStrict(L);
  if (const auto* arguments = dynamic_cast<const ArgumentSettings*>(&settings)) {
    SetArguments(L, arguments->rest());
  }
  return {};
}

/// strata.load(path [, {option=value, key=value, ...}]): the job of another script.
std::shared_ptr<JobObject> LoadJobFile(lua_State* L, const std::string& file) {
  // A script may lie anywhere, since it runs in the same sandbox. A file that is not a script must
  // be readable: a syntax error would show parts of it.
  if (!file.ends_with(".lua")) ReadablePath(L, CallingFolder(L), file, "strata.load");
  const std::string path = PathFromScript(L, file);
  const bool has_table = !lua_isnoneornil(L, 2);
  if (has_table && !IsPlainTable(L, 2)) ThrowExpected(L, 2, "a table of options: {depth=2}");
  const Value table = has_table ? ToValueFor(L, path, 2, "strata.load") : Value();
  TableSettings settings(table, "strata.load", State::Core::Of(L).Place(L));
  auto job = EvaluateJob(L, path, &settings);
  settings.CheckAllTaken(path);
  return job;
}

/// Merges the overrides `over` into `base`. A null in `over` means that the key has no value.
Value MergedOverrides(Value base, const Value& over) {
  if (over.is_null()) return base;
  if (!base.is_map() || !over.is_map()) return over;
  for (const auto& [name, value] : over.as_map()) {
    base.Set(name, value.is_null() ? value : MergedOverrides(base[name], value));
  }
  return base;
}

// ---- The job's keys as fields

std::vector<LayerSpec> JobLayers(const JobObject& self) { return InWhole(self.job.layers); }

LayerSpec JobLoss(const JobObject& self) { return self.job.loss; }

Value JobKey(const JobObject& self, const std::string& name) { return self.job.ToValue()[name]; }

std::vector<std::string> JobKeyNames(lua_State*) {
  std::vector<std::string> names;
  static const Value keys = Job().ToValue();  // all jobs have the same keys
  for (const auto& [name, value] : keys.as_map()) {
    if (name != "layers" && name != "loss") names.push_back(name);
  }
  return names;
}

/// A value of the job's table as the script wrote it; {"sgd", lr=0.1} has positions and names.
std::string GivenText(const Value& value) {
  if (!value.is_map() || !value.Has("1")) return value.ToLua();
  std::vector<std::string> entries;
  Value named = value;
  for (int i = 1; named.Has(Str(i)); ++i) {
    entries.push_back(named[Str(i)].ToLua());
    named.Erase(Str(i));
  }
  const std::string rest = named.ToLua();
  if (rest.size() > 2) entries.push_back(rest.substr(1, rest.size() - 2));
  return Str("{", Join(entries, ", "), "}");
}

/// Prints the job's name, its layers, its loss, and the other keys that were given.
std::string ShowJob(const JobObject& self) {
  const Job& job = self.job;
  std::string text =
      Str("job \"", job.name, "\"", self.raw.where.empty() ? "" : " at ", self.raw.where);
  TextTable layers({"layer", "type", "parameters"});
  int index = 0;
  for (const LayerSpec& layer : InWhole(job.layers)) {
    layers.Add({Str(index++), layer.ToString(), FormatCount(CountParameters(layer))});
  }
  text += "\n" + layers.Render();
  if (!job.loss.type.empty()) text += Str("loss: ", job.loss.ToString(), "\n");
  const Value given = MergedOverrides(self.raw.keys, self.overrides);
  for (const auto& [name, value] : given.as_map()) {
    if (name != "name" && name != "loss") text += Str(name, ": ", GivenText(value), "\n");
  }
  text.pop_back();
  return text;
}

/// The help of a job's key.
std::string DescribeJobKey(lua_State* L) {
  const std::string name = TextArgument(L, 2, "a key");
  const Field* key = FindField(JobFields(), name);
  // job.train_data and job.test_data are parts of the key data.
  return key ? KeyHelp(*key) : Str("job.", name, ": of the key data");
}

}  // namespace

const ObjectType& TypeOf<JobObject>::Get() {
  static const ObjectType type{
      .name = "job",
      .methods =
          {{"summary", FunctionOf<2, JobSummary>,
            "job:summary([keys]): every layer's output, parameters, FLOPs, activations, weights "
            "and "
            "stage",
            ChangeableKeys},
           {"plan", FunctionOf<2, JobPlan>,
            "job:plan{key=value, ...}: the job, with these keys over its own, placed on ranks: a "
            "plan\nThe keys are those of strata.job; the members of parallel and batch may stand "
            "alone:\njob:plan{pipe=4, micro_batches=16, partition=\"uniform\", schedule=\"zb_h1\"}",
            ChangeableKeys, GivenType<PlanObject>},
           {"search", FunctionOf<2, JobSearch>,
            "job:search{gpus=, memory=, link=, cluster=, budget=, top=, key=value, ...}: the best "
            "plans on a cluster\nthat need not be here; keys of the job are kept as they are "
            "given. "
            "s.plans[1].keys is for\njob:plan; s prints itself as a report, which is s.text",
            SearchKeys},
           {"train", FunctionOf<2, JobTrain>,
            "job:train{key=value, ...}: trains in this process; a list with loss, grad_norm and lr "
            "per "
            "step",
            ChangeableKeys},
           {"start", FunctionOf<2, JobStart>,
            "job:start{key=value, ...}: an engine, to be driven step by step", ChangeableKeys,
            GivenType<EngineObject>}},
      .properties = {{"layers", Function<JobLayers>, "job.layers: the flattened list of layers"},
                     {"loss", Function<JobLoss>, "job.loss: the loss", nullptr,
                      GivenType<LayerSpec>}},
      .metamethods = {{"__tostring", Function<ShowJob>}},
      .lookup = Function<JobKey, "a key">,
      .list_names = Function<JobKeyNames>,
      .help = "a job: what strata.job{...} gives; its keys are its fields",
      .describe = Function<DescribeJobKey>};
  return type;
}

const FieldTable& ChangeableKeys() {
  static const FieldTable kKeys = [] {
    FieldTable keys = JobFields();
    for (const FieldTable* table : {&ParallelFields(), &BatchFields()}) {
      keys.insert(keys.end(), table->begin(), table->end());
    }
    return keys;
  }();
  return kKeys;
}

std::shared_ptr<JobObject> EvaluateJob(lua_State* L, const std::string& path, Settings* settings) {
  const Evaluating evaluating(State::Core::Of(L), path, settings);
  const NestedCall nested(L);
  LoadScript(L, path);
  CallProtected(L, 0, 1);
  auto job = ObjectAt<JobObject>(L, -1);
  if (!job) {
    throw ConfigError(Str(path, " must return a job, as in `return strata.job{...}`; it returned ",
                          Describe(L, -1)));
  }
  return job;
}

Job ChangedJob(lua_State* L, const JobObject& job, int index) {
  if (const auto* arguments = dynamic_cast<const ArgumentSettings*>(State::Core::Of(L).settings)) {
    arguments->CheckAllTaken();  // all options were declared by now
  }
  if (lua_isnoneornil(L, index)) return job.job;
  Value keys;
  if (const auto saved = ObjectAt<SavedPlan>(L, index)) {
    CheckFits(*saved, job.job);
    keys = KeysOf(*saved);
  } else {
    if (!IsPlainTable(L, index)) ThrowExpected(L, index, "a table of job keys");
    keys = ToValueFor(L, job.raw.script, index, "the job's keys");
  }
  const Value changes = Overrides(keys, State::Core::Of(L).Place(L));
  RawJob raw = job.raw;
  raw.examine = ExamineIn(L, raw.script);
  raw.call = CallIn(L);
  const Job changed = BuildJob(raw, MergedOverrides(job.overrides, changes));
  CheckMayRead(L, changed);
  return changed;
}

void AddJobs(lua_State* L) {
  const NamedFunction functions[] = {
      {"job", FunctionOf<1, MakeJob>,
       "strata.job{layers={...}, key=value, ...}: what a script returns", JobFields,
       GivenType<JobObject>},
      {"options", FunctionOf<1, Options>,
       "strata.options{name=default, ...}: the script's own flags with what they were given"},
      {"load", FunctionOf<2, LoadJobFile, "the path of a script">,
       "strata.load(path [, {option=value, key=value}]): the job of another script\nWhat the table "
       "leaves out, of the script's options and the job's keys, is as the script says.",
       nullptr, GivenType<JobObject>}};
  SetFunctions(L, functions);
}

}  // namespace strata::lua
