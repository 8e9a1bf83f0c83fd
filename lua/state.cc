#include "lua/state.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/binding.h"
#include "lua/chunk.h"
#include "lua/core.h"
#include "lua/job_object.h"
#include "lua/library.h"
#include "lua/sandbox.h"
#include "lua/script_host.h"
#include "lua/show.h"

namespace strata::lua {
namespace {

/// Calls the function at the top of the stack and shows what it gives.
std::string CallAndShow(lua_State* L) {
  CallProtected(L, 0, LUA_MULTRET);
  std::string shown;
  const int results = lua_gettop(L);
  luaL_checkstack(L, 20, "too many results");
  for (int i = 1; i <= results; ++i) shown += (i > 1 ? "\n" : "") + ShowQuoted(L, i);
  return shown;
}

/// Loads a text; gives the error, "" where there is none.
std::string LoadError(lua_State* L, const std::string& name, std::string text) {
  try {
    LoadChunk(L, name, {std::move(text), ".", ""});
    return "";
  } catch (const ConfigError& error) {
    lua_settop(L, 0);
    return error.what();
  }
}

/// Whether a further line could mend the error. No line ends a 'string' that the one before began.
bool EndsTooEarly(const std::string& error) {
  return error.ends_with("near '<eof>'") && error.find("unfinished string") == error.npos;
}

/// Loads `text` as an expression or else as statements; false when it is only a beginning.
bool LoadLine(lua_State* L, const std::string& name, const std::string& text) {
  const std::string as_expression = LoadError(L, name, "return " + text);
  if (as_expression.empty()) return true;
  const std::string as_statements = LoadError(L, name, text);
  if (as_statements.empty()) return true;
  if (EndsTooEarly(as_expression) || EndsTooEarly(as_statements)) return false;
  throw ConfigError(as_statements);
}

/// Where the script's own table of arguments stands.
void SetArguments(lua_State* L, const std::vector<std::string>& arguments) {
  lua_newtable(L);
  for (size_t i = 0; i < arguments.size(); ++i) {
    PushText(L, arguments[i]);
    lua_rawseti(L, -2, static_cast<int>(i));
  }
  lua_setglobal(L, "arg");
}

}  // namespace

State::State(StateOptions options) : core_(std::make_unique<Core>(*this, std::move(options))) {
  core_->host = std::make_unique<ScriptHost>(*this);
  Session(*this).Run([&](lua_State* L) {
    OpenSandbox(L);
    OpenLibrary(L);
    SetArguments(L, core_->options.arguments);
  });
}

State::~State() = default;

State& State::Of(lua_State* L) { return Core::Of(L).owner; }

Job State::LoadJob(const std::string& path, Flags& flags) {
  Job job;
  Session(*this).Run([&](lua_State* L) {
    core_->script = path;
    job = EvaluateJob(L, path, &flags)->job;
    flags.CheckAllTaken();
    lua_setglobal(L, "job");
  });
  return job;
}

void State::RunFile(const std::string& path) {
  Session(*this).Run([&](lua_State* L) {
    core_->script = path;
    LoadScript(L, path);
    CallProtected(L, 0, 0);
  });
}

void OpenPrompt(State::Core& core, lua_State* L) {
  if (std::exchange(core.prompt_open, true)) return;
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  for (const char* name : {"nn", "F"}) {
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
    const std::string name = Str("prompt[", ++core_->prompts, "]");
    evaluation.incomplete = !LoadLine(L, name, text);
    if (!evaluation.incomplete) evaluation.shown = CallAndShow(L);
  });
  return evaluation;
}

void State::Interrupt() { core_->limits.Interrupt(); }

Script& State::script() { return *core_->host; }

}  // namespace strata::lua
