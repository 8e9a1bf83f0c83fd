// strata.schedule, and programs as Lua objects.

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/schedule/checker.h"
#include "engine/schedule/gantt.h"
#include "engine/schedule/generators/generators.h"
#include "engine/schedule/lifetimes.h"
#include "engine/schedule/lowering.h"
#include "engine/schedule/program_search.h"
#include "engine/schedule/simulator.h"
#include "lua/core/arguments.h"
#include "lua/core/bind.h"
#include "lua/core/core.h"
#include "lua/core/notes.h"
#include "lua/library/library.h"
#include "lua/library/program_object.h"

namespace strata::lua {

using schedule::Program;

namespace {

constexpr double kMostInt = 1e9;

const FieldTable& ParseFields() {
  static const FieldTable kFields = {
      Field::String("name", "what the program is called").Default("user"),
      Field::Int("ranks", "ranks; the number of lines when left out").AtLeast(0).Default(0),
      Field::Int("stages_per_rank", "stages of each rank; as the text says when left out")
          .AtLeast(1)
          .Optional(),
      Field::Int("micro_batches", "as many as the text names when left out").AtLeast(0).Default(0),
      Field::Shape("stage_ranks", "the rank of every stage").Default(Value::List{})};
  return kFields;
}

int ToInt(const Value& value) { return static_cast<int>(value.as_int()); }

Field Count(std::string name, std::string help) {
  return Field::Int(std::move(name), std::move(help)).AtLeast(1).AtMost(kMostInt);
}

/// Throws ConfigError unless each rank of the program has the given number of stages.
void CheckStagesPerRank(const Program& program, int64_t stages_per_rank) {
  const auto refuse = [&](const std::string& has) {
    throw ConfigError(Str("strata.schedule.parse: ", Plural(program.ranks(), "rank"),
                          " with stages_per_rank = ", stages_per_rank, " have ",
                          program.ranks() * stages_per_rank, " stages; ", has));
  };
  if (program.stages() != program.ranks() * stages_per_rank) {
    refuse(Str("the program has ", program.stages()));
  }
  for (int rank = 0; rank < program.ranks(); ++rank) {
    const int64_t stages = std::ranges::count(program.stage_ranks, rank);
    if (stages != stages_per_rank) refuse(Str("rank ", rank, " of the program has ", stages));
  }
}

/// strata.schedule.parse(csv [, {name=, ranks=, stages_per_rank=, micro_batches=, stage_ranks=}])
LuaProgram Parse(const std::string& csv, const Value& all) {
  const Value given = OptionsOf(all, ParseFields(), "strata.schedule.parse");
  schedule::ParseOptions options{.name = given["name"].as_string(),
                                 .ranks = ToInt(given["ranks"]),
                                 .micro_batches = ToInt(given["micro_batches"])};
  for (int64_t rank : given["stage_ranks"].as_ints()) {
    options.stage_ranks.push_back(static_cast<int>(rank));
  }
  Program program = schedule::ParseProgram(csv, options);
  const Value& stages_per_rank = given["stages_per_rank"];
  if (!stages_per_rank.is_null()) CheckStagesPerRank(program, stages_per_rank.as_int());
  return {std::move(program)};
}

const FieldTable& LoweringFields() {
  static const FieldTable kFields = {
      Field::Shape("tied_stages", "stages that hold a tied parameter").AtLeast(0).Optional()};
  return kFields;
}

/// p:lowered([{tied_stages={0, 3}}]). The program of a plan knows its tied stages; the option
/// replaces them.
LuaProgram Lowered(const LuaProgram& program, const Value& options) {
  const Value given = OptionsOf(options, LoweringFields(), "lowered")["tied_stages"];
  std::vector<int> tied = program.tied_stages;
  if (!given.is_null()) tied.clear();
  for (const int64_t stage : given.is_null() ? std::vector<int64_t>() : given.as_ints()) {
    if (stage >= program.stages()) {
      throw ConfigError(
          Str("lowered: tied_stages has stage ", stage, ", the program has ", program.stages()));
    }
    tied.push_back(static_cast<int>(stage));
  }
  return {Lower(program, {.tied_stages = tied}), tied};
}

/// p:check() returns true, or nil and the reason.
Pushed CheckProgram(lua_State* L, const LuaProgram& program) {
  const schedule::CheckResult result = Check(program, {.tied_stages = program.tied_stages});
  if (result.ok()) {
    lua_pushboolean(L, true);
    return {1};
  }
  lua_pushnil(L);
  PushText(L, result.Report());
  return {2};
}

// ---- Costs: p:simulate{F=1, I=1, W=1, comm=0}

Field Cost(const char* name, const char* help) {
  return Field::Numbers(name, 0, Str(help, ", for all stages or for each")).NamedOnly().AtLeast(0);
}

const FieldTable& CostFields() {
  static const FieldTable kFields = {
      Cost("F", "forward").Default(Value::List{1}),
      Cost("I", "backward, input gradient").Default(Value::List{1}),
      Cost("W", "backward, weight gradient").Default(Value::List{1}),
      Cost("B", "backward; I + W when left out").Optional(),
      Cost("R", "recomputation; F when left out").Optional(),
      Cost("overlap", "an OVERLAP pair; the sum of its parts when left out").Optional(),
      Field::Number("comm", "latency of a message").NamedOnly().AtLeast(0).Default(0),
      Cost("transfer", "what a message out of a stage, or back to it, takes beside comm")
          .Default(Value::List{0}),
      Cost("latency", "what it comes later beside that, without keeping the link")
          .Default(Value::List{0}),
      Cost("reduce", "a gradient reduction").Default(Value::List{0}),
      Cost("step", "the optimizer's step").Default(Value::List{0})};
  return kFields;
}

std::vector<double> Doubles(const Value& value) {
  std::vector<double> doubles;
  if (value.is_null()) return doubles;
  for (const Value& number : value.as_list()) doubles.push_back(number.as_double());
  return doubles;
}

schedule::Costs ToCosts(const Value& given) {
  return {.forward = Doubles(given["F"]),
          .input_grad = Doubles(given["I"]),
          .weight_grad = Doubles(given["W"]),
          .backward = Doubles(given["B"]),
          .recompute = Doubles(given["R"]),
          .overlap = Doubles(given["overlap"]),
          .comm = given["comm"].as_double(),
          .transfer = Doubles(given["transfer"]),
          .latency = Doubles(given["latency"]),
          .reduce = Doubles(given["reduce"]),
          .step = Doubles(given["step"])};
}

// ---- Programs by name

const FieldTable& SizeFields() {
  static const FieldTable kFields = {
      Count("ranks", "ranks of the pipe axis").Default(1),
      Count("stages_per_rank", "stages that share a rank").Default(1),
      Count("micro_batches", "micro-batches of a step").Default(1)};
  return kFields;
}

schedule::Sizes ToSizes(const Value& sizes) {
  return {.ranks = ToInt(sizes["ranks"]),
          .stages_per_rank = ToInt(sizes["stages_per_rank"]),
          .micro_batches = ToInt(sizes["micro_batches"])};
}

/// strata.schedule("auto", {ranks=4, ..., F=1, I=1, W=1, comm=0, memory=8}): a program for these
/// costs with at most `memory` live activations on a rank.
LuaProgram GenerateAuto(const Value& options) {
  static const FieldTable kFields = [] {
    FieldTable fields = SizeFields();
    fields.insert(fields.end(), CostFields().begin(), CostFields().end());
    fields.push_back(Field::Int("memory", "most live activations of a rank; 0 = any")
                         .NamedOnly()
                         .AtLeast(0)
                         .AtMost(kMostInt)
                         .Default(0));
    return fields;
  }();
  const Value given = OptionsOf(options, kFields, "strata.schedule");
  schedule::ProgramSearchOptions search;
  search.costs = ToCosts(given);
  search.memory = ToInt(given["memory"]);
  return {SearchProgram(ToSizes(given), search).program};
}

/// strata.schedule(name, {ranks=4, stages_per_rank=1, micro_batches=8}). Argument 1 is the table
/// strata.schedule itself.
LuaProgram Generate(lua_State* L) {
  const std::string name = TextArgument(L, 2, "the name of a schedule");
  const Value options = ToValue(L, 3, "the options");
  if (name == "auto") return GenerateAuto(options);
  return {schedule::Generate(name, ToSizes(OptionsOf(options, SizeFields(), "strata.schedule")))};
}

Value SimulateProgram(const LuaProgram& program, const Value& options) {
  const Value costs = OptionsOf(options, CostFields(), "simulate");
  const schedule::Simulation simulation = Simulate(program, ToCosts(costs));
  Value result;
  result.Set("makespan", simulation.makespan).Set("bubble", simulation.bubble);
  result.Set("busy", Value::List(simulation.busy.begin(), simulation.busy.end()));
  result.Set("wait", Value::List(simulation.wait.begin(), simulation.wait.end()));
  const std::vector<int>& peaks = simulation.peak_activations;
  return result.Set("peak_activations", Value::IntList({peaks.begin(), peaks.end()}));
}

const FieldTable& DrawingFields() {
  static const FieldTable kFields = [] {
    FieldTable fields = CostFields();
    fields.push_back(Field::Int("width", "columns for the time axis; 0 = as it fits")
                         .NamedOnly()
                         .AtLeast(0)
                         .AtMost(10000)
                         .Default(0));
    fields.push_back(Field::Bool("color", "ANSI colours").NamedOnly().Default(false));
    return fields;
  }();
  return kFields;
}

/// p:gantt([{F=1, ..., width=0, color=false}])
std::string DrawProgram(const LuaProgram& program, const Value& options) {
  const Value given = OptionsOf(options, DrawingFields(), "gantt");
  return Gantt(program, Simulate(program, ToCosts(given)),
               {.width = ToInt(given["width"]), .color = given["color"].as_bool()});
}

/// p.rows: for each rank the list of its actions, as texts.
std::vector<std::vector<std::string>> Rows(const LuaProgram& program) {
  std::vector<std::vector<std::string>> rows;
  for (const auto& row : program.rows) {
    for (auto& cells = rows.emplace_back(); const schedule::Action& action : row) {
      cells.push_back(ToText(action));
    }
  }
  return rows;
}

/// Prints a valid program as a diagram, an invalid one as a table of its actions.
std::string ShowProgram(const LuaProgram& program) {
  const bool right = Check(program).ok();
  std::string text = Str("program ", program.name, ", ", Plural(program.ranks(), "rank"), ", ",
                         Plural(program.stages(), "stage"), ", ",
                         Plural(program.micro_batches, "micro-batch"), "\n");
  text += right ? Gantt(program, Simulate(program)) : ToCsv(program);
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

/// The binding for a member that every program has.
template <auto kMember>
lua_CFunction Of =
    Function<[](const LuaProgram& program) { return std::invoke(kMember, program); }>;

}  // namespace

const ObjectType& TypeOf<LuaProgram>::Get() {
  static const ObjectType type{
      .name = "program",
      .methods =
          {{"csv", Function<[](const LuaProgram& program) { return ToCsv(program); }>,
            "program:csv(): its text, a line per rank: 0F0,0F1,0B0,..."},
           {"lowered", Function<Lowered, "the options">,
            "program:lowered([{tied_stages={0, 3}}]): with the sends, receives, reductions and "
            "steps "
            "that run\nThe ties of a plan's program are known.",
            LoweringFields, GivenType<LuaProgram>},
           {"check", FunctionOf<1, CheckProgram>,
            "program:check(): true, or nil and what is wrong"},
           {"buffers", Function<[](const LuaProgram& program) { return Buffers(program); }>,
            "program:buffers(): DeepSpeed's count of buffers, per rank"},
           {"simulate", Function<SimulateProgram, "the options">,
            "program:simulate{F=1, I=1, W=1, comm=0}: makespan, bubble, busy, wait and "
            "peak_activations\nEach cost is a number, or a list with one per stage; also B, R, "
            "overlap, transfer, reduce and step.",
            CostFields},
           {"gantt", Function<DrawProgram, "the options">,
            "program:gantt{F=1, I=1, W=1, comm=0, width=0, color=false}: its run as a picture of "
            "text",
            DrawingFields}},
      .properties = {{"name", Of<&Program::name>, "program.name: its schedule"},
                     {"ranks", Of<&Program::ranks>, "program.ranks: ranks of the pipe axis"},
                     {"stages", Of<&Program::stages>, "program.stages: how many"},
                     {"micro_batches", Of<&Program::micro_batches>,
                      "program.micro_batches: of a step"},
                     {"stage_ranks", Of<&Program::stage_ranks>,
                      "program.stage_ranks: the rank of every stage"},
                     {"rows", Function<Rows>, "program.rows: the actions' texts, a list per rank"}},
      .metamethods = {{"__tostring", Function<ShowProgram>}},
      .help = "a program: what every rank does in a step, in which order"};
  return type;
}

template <>
void Push(lua_State* L, const LuaProgram& program) {
  size_t bytes = 0;
  for (const auto& row : program.rows) bytes += row.capacity() * sizeof(schedule::Action);
  TakeMemory(L, bytes);
  Limits& limits = State::Core::Of(L).limits;
  PushObject(L, std::shared_ptr<LuaProgram>(new LuaProgram(program),
                                            [&limits, bytes](const LuaProgram* ended) {
                                              delete ended;
                                              limits.GiveBack(bytes);
                                            }));
}

void AddSchedule(lua_State* L) {
  lua_newtable(L);
  const NamedFunction functions[] = {{"parse",
                                      Function<Parse, "a program as CSV text", "the options">,
                                      "strata.schedule.parse(csv [, {name=, ranks=, "
                                      "stages_per_rank=, micro_batches=, stage_ranks=}]): "
                                      "the program that CSV text says",
                                      ParseFields, GivenType<LuaProgram>}};
  SetFunctions(L, functions);
  lua_newtable(L);
  lua_pushcfunction(L, (FunctionOf<3, Generate>));
  lua_setfield(L, -2, "__call");
  lua_setmetatable(L, -2);
  NoteHelp(L, -1,
           Str("strata.schedule(name, {ranks=4, stages_per_rank=1, micro_batches=8}): a program\n"
               "names: ",
               Join(schedule::GeneratorNames(), ", ")));
  NoteFields(L, -1, SizeFields());
  NoteResult(L, -1, GivenType<LuaProgram>);
  lua_setfield(L, -2, "schedule");
}

}  // namespace strata::lua
