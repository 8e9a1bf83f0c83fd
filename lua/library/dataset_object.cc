// Datasets as Lua objects: steps as methods, samples by index, and a printed form with a picture.

#include "lua/library/dataset_object.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/data/data_script.h"
#include "engine/data/open_dataset.h"
#include "engine/data/sample_text.h"
#include "lua/core/arguments.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/file_access.h"
#include "lua/host/engine_api.h"

namespace strata::lua {
namespace {

std::string FolderOf(const std::string& script) {
  return std::filesystem::path(script).parent_path().string();
}

/// Relative paths refer to the script's folder, or at the prompt to the current one.
DatasetContext ContextOf(lua_State* L, const std::string& folder) {
  DatasetContext context;
  context.script_folder = folder;
  context.script = &dynamic_cast<DataScript&>(State::Core::Of(L).owner.script());
  return context;
}

/// Opens data; the script's clock stands still meanwhile.
std::unique_ptr<Dataset> OpenIn(lua_State* L, const DataSpec& spec, const std::string& folder) {
  const ClockSwitch off_the_clock(State::Core::Of(L).limits, false);
  return OpenDataset(spec, ContextOf(L, folder));
}

DatasetObject& SelfAt(lua_State* L) { return Self<DatasetObject>(L); }

int PushData(lua_State* L, Value source, const std::string& folder) {
  PushObject(L, std::make_shared<DatasetObject>(DatasetObject{std::move(source), folder}));
  return 1;
}

int PushStep(lua_State* L, Value source) {
  return PushData(L, std::move(source), SelfAt(L).folder);
}

// ---- Steps: d:NAME{...}

/// The source of a step over several datasets: d:concat(other, ...).
Value SeveralOf(lua_State* L) {
  Value::List of;
  for (int i = 1; i <= lua_gettop(L); ++i)
    of.push_back(ObjectArgument<DatasetObject>(L, i)->source);
  return of;
}

int MakeStepOf(lua_State* L, const DataSourceType& type) {
  const std::string place = State::Core::Of(L).Place(L);
  if (type.of == DataSourceType::Of::kSeveral) {
    return PushStep(L, MakeDataStep(type.name, SeveralOf(L), {}, {}, place));
  }
  const Arguments arguments(L, 2);
  const std::string subject = "the step " + type.name;
  return PushStep(L, MakeDataStep(type.name, SelfAt(L).source, arguments.Positional(subject),
                                  arguments.Named(subject), place));
}

template <size_t kIndex>
int MakeStep(lua_State* L) {
  return MakeStepOf(L, DataStepTypes()[kIndex]);
}

template <size_t kIndex>
const FieldTable& StepFields() {
  return DataStepTypes()[kIndex].fields;
}

/// The end of each part, in samples. `parts` are shares of the samples, which are rounded, or
/// numbers of samples.
std::vector<int64_t> EndsOf(const Value::List& parts, int64_t size) {
  double sum = 0;
  for (const Value& part : parts) {
    if (!part.is_number() || !(part.as_double() > 0)) {
      throw ConfigError(Str("split expects shares such as {0.9, 0.1}, or numbers of samples; got ",
                            part.Describe()));
    }
    sum += part.as_double();
  }
  if (parts.empty()) throw ConfigError("split expects shares such as {0.9, 0.1}, got none");
  const bool are_shares = sum <= 1 + 1e-9;
  const bool are_whole = std::ranges::all_of(parts, &Value::is_int);
  if (!are_shares && !are_whole) {
    throw ConfigError(Str("split: shares add up to at most 1, got ", FormatDouble(sum)));
  }
  if (!are_shares && sum > static_cast<double>(size)) {
    throw ConfigError(Str("split: the parts have ", FormatDouble(sum), " samples, the data has ",
                          FormatCount(size)));
  }
  std::vector<int64_t> ends;
  double end = 0;
  for (const Value& part : parts) {
    end += part.as_double();
    const double samples = are_shares ? end * static_cast<double>(size) : end;
    const int64_t before = ends.empty() ? 0 : ends.back();
    ends.push_back(std::min(size, static_cast<int64_t>(std::llround(samples))));
    if (ends.back() > before) continue;
    throw ConfigError(
        Str("split: part ", ends.size(), " of ", FormatCount(size), " samples has none"));
  }
  return ends;
}

/// d:split{0.9, 0.1, seed=0} returns a dataset for each share.
int SplitData(lua_State* L) {
  const Arguments arguments(L, 2);
  const Value::List parts = arguments.Positional("split");
  Value seed = 0;
  for (const auto& [name, value] : arguments.Named("split")) {
    if (name != "seed") {
      throw ConfigError(Str("split has no argument \"", name, "\"; it is one of seed"));
    }
    seed = value == Value(false) ? Value() : value;
  }
  DatasetObject& self = SelfAt(L);
  const int64_t size = Opened(L, self).size();
  const std::vector<int64_t> ends = EndsOf(parts, size);
  int64_t begin = 0;
  for (const int64_t end : ends) {
    PushStep(L, MakeDataStep("part", self.source, {},
                             {{"begin", begin}, {"end", end}, {"seed", seed}, {"counted", size}},
                             State::Core::Of(L).Place(L)));
    begin = end;
  }
  return static_cast<int>(ends.size());
}

/// d:shuffle([seed])
int ShuffleData(lua_State* L) {
  Value::Map named;
  if (!lua_isnoneornil(L, 2)) named.emplace_back("seed", IntArgument(L, 2, "a seed"));
  return PushStep(
      L, MakeDataStep("shuffled", SelfAt(L).source, {}, named, State::Core::Of(L).Place(L)));
}

// ---- Members: d[i], d.option

int SampleAt(lua_State* L, DatasetObject& self, double number) {
  const Dataset& data = Opened(L, self);
  const auto size = static_cast<double>(data.size());
  const double index = number < 0 ? number + size : number;
  if (index != std::floor(index) || index < 0 || index >= size) {
    throw ConfigError(Str("there is no sample ", FormatDouble(number), "; they are 0 to ",
                          FormatCount(data.size() - 1)));
  }
  return LoadEngine().PushSample(L, data.ReadPlain(static_cast<int64_t>(index)));
}

/// __index: d[i] is {input, target}; d.path is an option.
int LookUp(lua_State* L) {
  DatasetObject& self = SelfAt(L);
  if (lua_type(L, 2) == LUA_TNUMBER) {
    SampleAt(L, self, lua_tonumber(L, 2));
    lua_createtable(L, 2, 0);
    lua_insert(L, -3);
    lua_rawseti(L, -3, 2);
    lua_rawseti(L, -2, 1);
    return 1;
  }
  const Value* option = self.source.Find(TextArgument(L, 2, "an option"));
  if (!option) return 0;
  if (option->is_map() && option->Has("source")) return PushStep(L, *option);
  PushValue(L, option->is_null() ? Value(false) : *option);
  return 1;
}

int ListOptions(lua_State* L) {
  Value::List names;
  if (const auto self = ObjectAt<DatasetObject>(L, 1)) {
    for (const auto& [name, value] : self->source.as_map()) names.emplace_back(name);
  }
  PushValue(L, names);
  return 1;
}

/// d:sample(i) returns the input and the target of sample i.
int GetSample(lua_State* L) {
  return SampleAt(L, SelfAt(L), NumberArgument(L, 2, "the index of a sample, from 0 on"));
}

int Length(lua_State* L) {
  lua_pushnumber(L, static_cast<lua_Number>(Opened(L, SelfAt(L)).size()));
  return 1;
}

/// The folder of the job whose keys ToValueFor() is reading; null outside of ToValueFor().
thread_local const std::string* reading_folder = nullptr;

std::filesystem::path Whole(const std::string& folder) {
  return (std::filesystem::absolute(folder.empty() ? "." : folder) / "").lexically_normal();
}

bool HasPath(const Value& options, const std::string& option) {
  return options[option].is_string() && !options[option].as_string().empty();
}

/// The absolute path of an option of the data. Throws ConfigError if the script may not read it.
std::string ReadableIn(lua_State* L, const std::string& folder, const DataSpec& spec,
                       const std::string& option) {
  try {
    return ReadablePath(L, folder, spec.options[option].as_string(),
                        Str("strata.data.", spec.kind, ": ", option));
  } catch (const ConfigError& error) {
    throw ConfigError(Str(Place(spec.where), error.what()));
  }
}

DataSpec SpecOf(const Value& source) {
  return {source["source"].as_string(), source, {}, source["where"].as_string()};
}

/// The source, or step, with absolute paths in place of those relative to `folder`. The script that
/// receives it may then read these paths, if the script that made it was allowed to.
Value WithWholePaths(lua_State* L, Value source, const std::string& folder) {
  std::vector<std::string>& allowed = State::Core::Of(L).options.allow_read;
  for (const std::string& option : FindDataSource(source["source"].as_string())->paths) {
    if (!HasPath(source, option)) continue;
    const std::string path = ReadableIn(L, folder, SpecOf(source), option);
    if (std::ranges::find(allowed, path) == allowed.end()) allowed.push_back(path);
    source.Set(option, path);
  }
  const Value of = source["of"];
  if (of.is_map()) return source.Set("of", WithWholePaths(L, of, folder));
  if (!of.is_list()) return source;
  Value::List parts;
  for (const Value& part : of.as_list()) parts.push_back(WithWholePaths(L, part, folder));
  return source.Set("of", std::move(parts));
}

int ToData(lua_State* L) {
  const DatasetObject& self = SelfAt(L);
  const bool is_here = !reading_folder || Whole(*reading_folder) == Whole(self.folder);
  PushValue(L, is_here ? self.source : WithWholePaths(L, self.source, self.folder));
  return 1;
}

/// Prints what the data is, its shapes, and the first sample as a picture if it is an image.
int ShowData(lua_State* L) {
  PushText(L, DescribeWithPicture(Opened(L, SelfAt(L))));
  return 1;
}

/// d.options: the options that the data was made with, by name.
int OptionsOf(lua_State* L) {
  Value options = SelfAt(L).source;
  for (const char* name : {"source", "where", "of"}) options.Erase(name);
  PushValue(L, options);
  return 1;
}

constexpr size_t kSteps = 16;  // DataStepTypes()

template <size_t... kIndices>
std::vector<NamedFunction> Methods(std::index_sequence<kIndices...>) {
  STRATA_CHECK(DataStepTypes().size() == kSteps) << "there are " << DataStepTypes().size();
  static std::vector<std::string> helps;  // these must live as long as the type
  for (const DataSourceType& type : DataStepTypes()) {
    helps.push_back(Str("d:", type.name, "{...}: ", type.help, "\n", FieldHelp(type.fields)));
  }
  std::vector<NamedFunction> methods = {
      NamedFunction{DataStepTypes()[kIndices].name.c_str(), Bound<MakeStep<kIndices>>,
                    helps[kIndices].c_str(), StepFields<kIndices>, GivenType<DatasetObject>}...};
  // These steps have methods with other names.
  std::erase_if(methods, [](const NamedFunction& method) {
    return std::string_view(method.name) == "part" || std::string_view(method.name) == "shuffled";
  });
  methods.push_back(
      {"split", Bound<SplitData>,
       "d:split{0.9, 0.1, seed=0}: a dataset for each share, or number of samples, in a random "
       "order\nseed=false leaves them in their order."});
  methods.push_back({"shuffle", Bound<ShuffleData, 2>,
                     "d:shuffle([seed]): in another order, always the same one", nullptr,
                     GivenType<DatasetObject>});
  methods.push_back({"sample", Bound<GetSample, 2>,
                     "d:sample(i): input and target of sample i, from 0 on; d[i] has both in a "
                     "table"});
  return methods;
}

}  // namespace

const ObjectType& TypeOf<DatasetObject>::Get() {
  static const ObjectType type{
      "dataset",
      Methods(std::make_index_sequence<kSteps>()),
      {{"options", Bound<OptionsOf>, "d.options: what it was made with"}},
      {{"__len", Bound<Length>}, {"__tostring", Bound<ShowData>}},
      Bound<LookUp>,
      Bound<ListOptions>,
      Bound<ToData>,
      "data with an end: #d samples, d[i] from 0 on; a job's data, or what steps make of it"};
  return type;
}

const Dataset& Opened(lua_State* L, DatasetObject& object) {
  if (!object.opened) {
    // As for a job, a step's options are completed only when the data is opened.
    const std::string place = State::Core::Of(L).Place(L);
    const ExamineData open = [&](const DataSpec& spec) {
      CheckMayRead(L, spec, object.folder);
      object.opened = OpenIn(L, spec, object.folder);
      return object.opened->facts();
    };
    const DataSpec spec = ParseDataSpec(object.source, nullptr, place, open);
    CheckMayRead(L, spec, object.folder);
    if (!object.opened) object.opened = OpenIn(L, spec, object.folder);
  }
  return *object.opened;
}

ExamineData ExamineIn(lua_State* L, const std::string& script) {
  const std::string folder = FolderOf(script);
  return [L, folder](const DataSpec& spec) {
    CheckMayRead(L, spec, folder);
    return OpenIn(L, spec, folder)->facts();
  };
}

void CheckMayRead(lua_State* L, const Job& job) {
  CheckMayRead(L, job.train_data, FolderOf(job.script));
  CheckMayRead(L, job.test_data, FolderOf(job.script));
}

void CheckMayRead(lua_State* L, const DataSpec& spec, const std::string& folder) {
  const DataSourceType* type = FindDataSource(spec.kind);
  if (!type) return;
  for (const std::string& name : type->paths) {
    if (HasPath(spec.options, name)) ReadableIn(L, folder, spec, name);
  }
  const Value& of = spec.options["of"];
  const auto check = [&](const Value& source) { CheckMayRead(L, SpecOf(source), folder); };
  if (of.is_map()) check(of);
  if (of.is_list()) std::ranges::for_each(of.as_list(), check);
}

Value ToValueFor(lua_State* L, const std::string& script, int index, std::string_view what) {
  const std::string folder = FolderOf(script);
  struct Reading {
    explicit Reading(const std::string* read) { reading_folder = read; }
    ~Reading() { reading_folder = nullptr; }
  } const reading(&folder);
  return ToValue(L, index, what);
}

int MakeDataset(lua_State* L) {
  const std::string name(TextAt(L, lua_upvalueindex(1)));
  const Arguments arguments(L, 1);
  const std::string subject = "strata.data." + name;
  return PushData(L,
                  MakeDataSource(name, arguments.Positional(subject), arguments.Named(subject),
                                 State::Core::Of(L).Place(L)),
                  FolderOf(State::Core::Of(L).script));
}

}  // namespace strata::lua
