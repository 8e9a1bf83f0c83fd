// The text that help() prints.
#include "lua/prompt/help.h"

#include <algorithm>
#include <cstring>

#include "engine/base/text.h"
#include "engine/job/job_fields.h"
#include "lua/core/binding.h"
#include "lua/core/chunk.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/expression.h"
#include "lua/core/notes.h"
#include "lua/core/object.h"
#include "lua/host/engine_api.h"
#include "lua/library/key_help.h"
#include "lua/library/layer_object.h"
#include "lua/library/show.h"
#include "lua/prompt/follow.h"

namespace strata::lua {
namespace {

constexpr char kOverview[] =
    R"(help(x), or x? at the prompt, explains a layer, a function, an object or a key:
  help(nn)          layers and losses; help(nn.Conv2d) its arguments and shapes
  help(F)           every operator of LibTorch; help(F.softmax) its signatures
  help(strata)      everything else; help(strata.job) the keys of a job
  help("schedule")  a key of a job, a member of one or a choice: "pipe", "adamw"
  help(plan)        what an object can do: a job, a plan, a program, a tensor
With a script there is its `job`: job:summary(), job:plan{pipe=2}, job:train{steps=3}.
At the prompt values print themselves, `;` at the end of a line silences them; `_` is
the last result; Tab completes; :time EXPRESSION takes the time, :time alone does so
for every line; Ctrl-C comes back to the prompt, Ctrl-D leaves. Names that nobody has
set are errors, in scripts too; _G.name is nil instead.)";

std::string FirstLine(const std::string& text) { return text.substr(0, text.find('\n')); }

std::string WithoutEnd(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

/// The engine's help for the function or name at `index`; "" if there is none, or the engine is not
/// loaded.
std::string OperatorHelp(lua_State* L, int index) {
  if (!PushAnswer(L, kOperatorHelp, index)) return "";
  std::string text(TextAt(L, -1));
  lua_pop(L, 1);
  return text;
}

// ---- Functions of scripts

/// The comment directly above a line of a script, without its dashes; "" if there is none.
std::string CommentAbove(const std::string& source, int line) {
  const std::vector<std::string> lines = Split(source, '\n');
  std::string comment;
  for (int i = line - 2; i >= 0 && i < static_cast<int>(lines.size()); --i) {
    std::string_view text = Trim(lines[static_cast<size_t>(i)]);
    if (!text.starts_with("--")) break;
    text.remove_prefix(std::min(text.find_first_not_of('-'), text.size()));
    comment = Str("\n", Trim(text), comment);
  }
  return comment;
}

std::string ScriptFunctionHelp(lua_State* L, int index) {
  const std::string place = FunctionPlace(L, index);
  const size_t colon = place.rfind(':');
  const auto& chunks = State::Core::Of(L).chunks;
  const auto chunk = chunks.find(place.substr(0, colon));
  const std::string comment =
      chunk == chunks.end()
          ? ""
          : CommentAbove(chunk->second.source, std::stoi(place.substr(colon + 1)));
  return Show(L, index) + comment;
}

std::string FunctionHelp(lua_State* L, int index) {
  if (!lua_iscfunction(L, index)) return ScriptFunctionHelp(L, index);
  const std::string help = OperatorHelp(L, index);
  return help.empty() ? "a built-in function" : help;
}

// ---- Layers

std::string LayerTypeHelp(const LayerConstructor& constructor) {
  return constructor.type
             ? WithoutEnd(LayerHelp(*constructor.type))
             : Str(constructor.name, "{...}: a layer of the script's, ", constructor.forward.where);
}

std::string LayerInstanceHelp(const LayerSpec& layer) {
  std::string text =
      Str(layer.ToString(), ": a layer with ", Plural(CountParameters(layer), "parameter"));
  if (!layer.where.empty()) text += Str(", from ", layer.where);
  const LayerType* type = layer.scripted ? nullptr : FindLayerType(layer.type);
  return type ? Str(text, "\n", WithoutEnd(LayerHelp(*type))) : text;
}

// ---- Lists of members

/// One line for the value at the top of the stack, a member called `name`.
std::string MemberLine(lua_State* L, const std::string& name) {
  const std::string noted = NotedHelp(L, -1);
  if (!noted.empty()) return FirstLine(noted);
  if (const auto constructor = ObjectAt<LayerConstructor>(L, -1)) {
    return FirstLine(LayerTypeHelp(*constructor));
  }
  return name;
}

std::string TableMembers(lua_State* L, int index) {
  std::vector<std::string> lines;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING) continue;
    lines.push_back(MemberLine(L, std::string(TextAt(L, -2))));
  }
  std::sort(lines.begin(), lines.end());
  std::string text;
  for (const std::string& line : lines) text += "\n  " + line;
  return text;
}

std::string TableHelp(lua_State* L, int index) {
  const std::string noted = NotedHelp(L, index);
  if (noted.empty()) return DescribeTable(L, index);
  return noted + TableMembers(L, index);
}

std::string ObjectText(lua_State* L, int index) {
  if (const auto constructor = ObjectAt<LayerConstructor>(L, index)) {
    return LayerTypeHelp(*constructor);
  }
  if (const auto layer = ObjectAt<LayerSpec>(L, index)) return LayerInstanceHelp(*layer);
  std::string text = ObjectHelp(L, index);
  std::vector<std::string> names = ObjectMembers(L, index);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    const std::string help = ObjectMemberHelp(L, index, name);
    if (!help.empty()) text += "\n  " + FirstLine(help);
  }
  return text;
}

// ---- Names

/// Pushes the value of a dotted name, which begins with a global or a field of the library. False
/// if there is none.
bool PushNamed(lua_State* L, const std::string& name) {
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  const int library = lua_gettop(L);
  for (const int root : {LUA_GLOBALSINDEX, library}) {
    lua_pushvalue(L, root);
    bool found = true;
    for (const std::string& step : Split(name, '.')) found = found && FollowStep(L, step);
    if (found) return true;
    lua_settop(L, library);
  }
  lua_pop(L, 1);
  return false;
}

bool IsOneOf(const std::vector<std::string>& names, const std::string& name) {
  return std::ranges::find(names, name) != names.end();
}

/// The help of a choice of this key ("adamw", "1f1b"); "" if the name is not one.
std::string ChoiceHelp(const Field& key, const std::string& name) {
  for (const OptionTable& table : TablesOf(key)) {
    if (table.name != name) continue;
    return Str("job.", key.name, " = {\"", name, "\", ...}: ", key.help, "\n",
               WithoutEnd(FieldHelp(table.fields)));
  }
  if (!IsOneOf(ChoicesOf(key), name)) return "";
  return Str("job.", key.name, " = \"", name, "\"\n", KeyHelp(key));
}

/// The help of a member of this key ("pipe", "lr"). Types with the same help share an entry.
std::vector<std::string> MemberHelps(const Field& key, const std::string& name) {
  std::vector<std::pair<Field, std::vector<std::string>>> found;  // each with the types' names
  for (const OptionTable& table : TablesOf(key)) {
    const Field* const member = FindField(table.fields, name);
    if (!member || !member->refused.empty()) continue;
    const auto alike = std::ranges::find_if(
        found, [&](const auto& other) { return FieldHelp({other.first}) == FieldHelp({*member}); });
    if (alike == found.end()) {
      found.push_back({*member, {table.name}});
    } else {
      alike->second.push_back(table.name);
    }
  }
  std::vector<std::string> helps;
  for (const auto& [member, types] : found) {
    const std::string of = types[0].empty() ? "" : Str(" of ", Join(types, ", "));
    helps.push_back(Str("job.", key.name, ".", name, of, ": ", member.help, "\n",
                        WithoutEnd(FieldHelp({member}))));
  }
  return helps;
}

/// The help of everything with this name among the choices and members of all keys; "" if there is
/// nothing.
std::string OptionHelp(const std::string& name) {
  std::vector<std::string> helps;
  for (const Field& key : JobFields()) {
    if (std::string help = ChoiceHelp(key, name); !help.empty()) helps.push_back(std::move(help));
    for (std::string& help : MemberHelps(key, name)) helps.push_back(std::move(help));
  }
  return Join(helps, "\n\n");
}

constexpr std::string_view kJob = "job.";

/// The help of "job.save" and "job.save.every", the forms that help texts use; "" for others.
std::string JobKeyHelp(std::string_view name) {
  if (!name.starts_with(kJob)) return "";
  name.remove_prefix(kJob.size());
  const size_t dot = name.find('.');
  const Field* const key = FindField(JobFields(), name.substr(0, dot));
  if (!key) return "";
  if (dot == name.npos) return KeyHelp(*key);
  return Join(MemberHelps(*key, std::string(name.substr(dot + 1))), "\n\n");
}

/// The help of a name: a key, a layer, a field of the library, or an option; "" if it is unknown.
std::string TopicHelp(lua_State* L, const std::string& name) {
  if (std::string help = JobKeyHelp(name); !help.empty()) return help;
  if (const Field* key = FindField(JobFields(), name)) return KeyHelp(*key);
  if (const LayerType* type = FindLayerType(name)) return WithoutEnd(LayerHelp(*type));
  if (PushNamed(L, name)) return HelpOn(L, -1);
  if (const std::string help = OptionHelp(name); !help.empty()) return help;
  LoadEngine().InstallTensors(State::Of(L));
  PushText(L, name);
  std::string text = OperatorHelp(L, -1);
  lua_pop(L, 1);
  return text;
}

/// help([x])
int Help(lua_State* L) {
  PrintText(L, HelpOn(L, 1) + "\n");
  return 0;
}

[[noreturn]] void ThrowUnknownTopic(const std::string& name) {
  throw ConfigError(Str("help knows nothing of \"", name, "\"", DidYouMean(name, HelpTopics(), 0),
                        "; strata help, or help() at the prompt, shows where to begin"));
}

}  // namespace

std::string HelpOn(lua_State* L, int index) {
  index = index < 0 ? lua_gettop(L) + 1 + index : index;
  luaL_checkstack(L, 20, "too many values");
  switch (lua_type(L, index)) {
    case LUA_TNONE:
      return kOverview;
    case LUA_TSTRING: {
      const std::string name(TextAt(L, index));
      const std::string text = TopicHelp(L, name);
      if (text.empty()) ThrowUnknownTopic(name);
      return text;
    }
    case LUA_TTABLE:
      return TableHelp(L, index);
    case LUA_TFUNCTION: {
      if (lua_tocfunction(L, index) == Bound<Help>) return kOverview;
      const std::string noted = NotedHelp(L, index);
      return noted.empty() ? FunctionHelp(L, index) : noted;
    }
    case LUA_TUSERDATA: {
      const std::string noted = NotedHelp(L, index);
      return noted.empty() ? ObjectText(L, index) : noted;
    }
    case LUA_TNIL:
      throw ConfigError("help expects a name or a value, got nil");
    default:
      return Str(Show(L, index), ": a ", luaL_typename(L, index));
  }
}

std::string HelpOnExpression(lua_State* L, const std::string& expression) {
  const std::string text(Trim(expression));
  if (text.empty()) return kOverview;
  const Chain chain = ParseChain(text);
  if (chain.text.size() == text.size() && chain.is_known && !chain.word.empty()) {
    lua_pushvalue(L, LUA_GLOBALSINDEX);
    bool found = true;
    for (const std::string& step : chain.steps) found = found && FollowStep(L, step);
    if (found && (lua_type(L, -1) == LUA_TUSERDATA || IsType(L, -1))) {
      const std::string member = ObjectMemberHelp(L, -1, chain.word);
      if (!member.empty()) return member;
      if (FollowStep(L, chain.word)) return HelpOn(L, -1);
    }
    if (found && chain.steps.empty() && !FollowStep(L, chain.word)) {
      PushText(L, chain.word);
      return HelpOn(L, -1);
    }
    if (!found && text.starts_with(kJob)) {
      PushText(L, text);
      return HelpOn(L, -1);
    }
  }
  std::string value = text;  // x:method is also a value, but Lua has no syntax for it
  if (chain.is_method) value[text.size() - chain.word.size() - 1] = '.';
  try {
    LoadText(L, "return " + value, "=help");
    CallProtected(L, 0, 1);
  } catch (const ConfigError& error) {
    std::string_view what = error.what();
    if (what.starts_with("help:1: ")) what.remove_prefix(std::strlen("help:1: "));
    throw ConfigError(std::string(what));
  }
  return HelpOn(L, -1);
}

void AddHelp(lua_State* L) {
  const NamedFunction functions[] = {
      {"help", Bound<Help>,
       "strata.help([x]): prints what x is and takes; at the prompt also help(x)"}};
  SetFunctions(L, functions);
}

std::vector<std::string> HelpTopics() {
  std::vector<std::string> topics = FieldNames(JobFields());
  for (const std::string& layer : LayerTypeNames()) topics.push_back(layer);
  for (const char* name : {"strata", "nn", "F", "string", "table", "math", "bit", "coroutine"}) {
    topics.emplace_back(name);
  }
  for (const Field& key : JobFields()) {
    for (std::string& choice : ChoicesOf(key)) topics.push_back(std::move(choice));
    for (const OptionTable& table : TablesOf(key)) {
      for (std::string& member : FieldNames(table.fields)) topics.push_back(std::move(member));
    }
  }
  std::ranges::sort(topics);
  topics.erase(std::unique(topics.begin(), topics.end()), topics.end());
  return topics;
}

}  // namespace strata::lua
