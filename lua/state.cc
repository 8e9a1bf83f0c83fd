// State: puts the sandbox, the library and the prompt together, and runs scripts and lines in them.
#include "lua/core/state.h"

#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"
#include "lua/core/expression.h"
#include "lua/core/globals.h"
#include "lua/core/notes.h"
#include "lua/core/sandbox.h"
#include "lua/host/script_host.h"
#include "lua/library/job_object.h"
#include "lua/library/library.h"
#include "lua/library/show.h"
#include "lua/prompt/help.h"

namespace strata::lua {
namespace {

/// A value as the prompt shows it. A string of one line is quoted; for a built-in function its help
/// is shown.
std::string ShowAtPrompt(lua_State* L, int index) {
  if (lua_type(L, index) == LUA_TSTRING) {
    const std::string_view text = TextAt(L, index);
    const size_t end = text.find_last_not_of('\n');
    if (text.find('\n') != text.npos && end != text.npos)
      return std::string(text.substr(0, end + 1));
  }
  const bool is_library = lua_istable(L, index) && !NotedHelp(L, index).empty();
  if (is_library || lua_iscfunction(L, index)) return HelpOn(L, index);
  return Show(L, index, true);
}

/// Calls the function at the top of the stack, stores its first result as `_`, and shows all
/// results.
std::string CallAndShow(lua_State* L) {
  CallProtected(L, 0, LUA_MULTRET);
  std::string shown;
  const int results = lua_gettop(L);
  luaL_checkstack(L, 20, "too many results");
  if (results > 0) {
    lua_pushvalue(L, 1);
    lua_setglobal(L, kLastResult);
  }
  for (int i = 1; i <= results; ++i) shown += (i > 1 ? "\n" : "") + ShowAtPrompt(L, i);
  return shown;
}

/// The line without a leading `=`, which Torch7 allows before an expression.
std::string WithoutEquals(const std::string& line) {
  const size_t begin = line.find_first_not_of(" \t\n");
  return begin != line.npos && line[begin] == '=' ? line.substr(begin + 1) : line;
}

/// True for `x?` and `?x`, whose question mark is then removed. Not for a text of several lines or
/// with a comment.
bool AsksForHelp(std::string& line) {
  const std::string_view text = Trim(line);
  const bool asks = text.starts_with('?') || text.ends_with('?');
  if (!asks || text.find('\n') != text.npos || text.find("--") != text.npos) return false;
  const bool behind = text.ends_with('?');
  line = behind ? text.substr(0, text.size() - 1) : text.substr(1);
  return true;
}

/// Loads a text; returns the error, or "" if there is none.
std::string LoadError(lua_State* L, const std::string& name, std::string text) {
  try {
    LoadChunk(L, name, {std::move(text), ".", ""});
    return "";
  } catch (const ConfigError& error) {
    lua_settop(L, 0);
    return error.what();
  }
}

/// True if further lines could complete the text that had this error. An unfinished 'string' is
/// excluded, since it must end on its own line.
bool EndsTooEarly(const std::string& error) {
  return error.ends_with("near '<eof>'") && error.find("unfinished string") == error.npos;
}

/// True for a method without its arguments, `job:plan`. Lua alone would ask for another line.
bool IsBareMethod(std::string_view text) {
  const Chain chain = ParseChain(text);
  return chain.is_method && !chain.word.empty() && chain.text.size() == text.size();
}

/// Loads `text` as an expression, or else as statements. Returns false if it is only a beginning.
bool LoadLine(lua_State* L, const std::string& name, const std::string& text) {
  const std::string as_expression = LoadError(L, name, "return " + text);
  if (as_expression.empty()) return true;
  const std::string as_statements = LoadError(L, name, text);
  if (as_statements.empty()) return true;
  if (EndsTooEarly(as_expression) || EndsTooEarly(as_statements)) return false;
  throw ConfigError(as_statements);
}

/// Lets scripts read the paths that the command line names: every value, or element of a
/// comma-separated list, that exists as a path.
void AllowNamed(const std::vector<std::string>& values, std::vector<std::string>& allowed) {
  for (const std::string& value : values) {
    for (const std::string& path : Split(value, ',')) {
      std::error_code error;
      if (!path.empty() && std::filesystem::exists(path, error)) allowed.push_back(path);
    }
  }
}

/// The arguments after the script's name.
std::vector<std::string> BehindScript(const std::vector<std::string>& arguments) {
  if (arguments.empty()) return {};
  return {arguments.begin() + 1, arguments.end()};
}

/// Makes the global table `arg`: the script's name at 0, its arguments from 1 on.
void MakeArg(lua_State* L, const std::vector<std::string>& arguments) {
  lua_newtable(L);
  if (!arguments.empty()) {
    PushText(L, arguments[0]);
    lua_rawseti(L, -2, 0);
  }
  lua_setglobal(L, "arg");
  SetArguments(L, BehindScript(arguments));
}

}  // namespace

State::State(StateOptions options) : core_(std::make_unique<Core>(*this, std::move(options))) {
  core_->host = std::make_unique<ScriptHost>(*this);
  Session(*this).Run([&](lua_State* L) {
    OpenSandbox(L);
    OpenLibrary(L);
    lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
    AddHelp(L);
    MakeArg(L, core_->options.arguments);
  });
}

State::~State() = default;

State& State::Of(lua_State* L) { return Core::Of(L).owner; }

Job State::LoadJob(const std::string& path, Flags& flags) {
  Job job;
  Session(*this).Run([&](lua_State* L) {
    core_->script = path;
    AllowNamed(flags.given(), core_->options.allow_read);
    job = EvaluateJob(L, path, &flags)->job;
    flags.CheckAllTaken();
    lua_setglobal(L, "job");
  });
  return job;
}

void State::RunFile(const std::string& path) {
  Session(*this).Run([&](lua_State* L) {
    core_->script = path;
    ArgumentSettings settings(BehindScript(core_->options.arguments));
    AllowNamed(settings.given(), core_->options.allow_read);
    const Evaluating evaluating(*core_, path, &settings);
    LoadScript(L, path);
    CallProtected(L, 0, 0);
    settings.CheckAllTaken();
  });
}

void OpenPrompt(State::Core& core, lua_State* L) {
  if (std::exchange(core.prompt_open, true)) return;
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  for (const char* name : {"nn", "F", "help"}) {
    lua_getfield(L, -1, name);
    lua_setglobal(L, name);
  }
  lua_setglobal(L, "strata");
}

Evaluation State::Evaluate(const std::string& text) {
  Evaluation evaluation;
  Session(*this).Run([&](lua_State* L) {
    OpenPrompt(*core_, L);
    core_->script.clear();
    std::string line = WithoutEquals(text);
    if (AsksForHelp(line) || IsBareMethod(Trim(line))) {
      evaluation.shown = HelpOnExpression(L, line);
      return;
    }
    const std::string name = Str("prompt[", ++core_->prompts, "]");
    evaluation.incomplete = !LoadLine(L, name, line);
    if (evaluation.incomplete) {
      --core_->prompts;  // the whole input will have this number
      return;
    }
    evaluation.shown = CallAndShow(L);
    if (Trim(line).ends_with(';')) evaluation.shown.clear();
  });
  return evaluation;
}

bool State::Interrupt() { return core_->limits.Interrupt(); }

Script& State::script() { return *core_->host; }

}  // namespace strata::lua
