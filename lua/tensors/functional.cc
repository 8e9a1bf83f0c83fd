// The functions of torch.nn.functional: reads their signatures, and runs their bodies, which are
// written in Lua.
#include "lua/tensors/functional.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <map>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"
#include "lua/core/binding.h"
#include "lua/core/chunk.h"
#include "lua/core/core.h"
#include "lua/library/show.h"
#include "lua/tensors/call.h"
#include "lua/tensors/operators.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

constexpr std::string_view kSignatures =
#include "lua/tensors/signatures.inc"
    ;
constexpr std::string_view kBodies =
#include "lua/tensors/functional.inc"
    ;

constexpr char kRegistryBodies[] = "strata.functional";  // registry: name -> body

/// The function of F whose body runs. Errors of operators that the body calls are reported under
/// this name.
thread_local std::string_view running;

struct Running {
  explicit Running(std::string_view name) : before(std::exchange(running, name)) {}
  ~Running() { running = before; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;
  std::string_view before;
};

Functional ReadLine(std::string_view line) {
  constexpr std::string_view kNo = "no ", kTorch = "torch.";
  Functional functional;
  if (line.starts_with(kNo)) {
    const size_t colon = line.find(": ");
    functional.name = line.substr(kNo.size(), colon - kNo.size());
    functional.no_function = line.substr(colon + 2);
    return functional;
  }
  functional.of_torch = line.starts_with(kTorch);
  if (functional.of_torch) line.remove_prefix(kTorch.size());
  functional.name = line.substr(0, line.find('('));
  if (line.starts_with(kInitPrefix)) line.remove_prefix(kInitPrefix.size());
  functional.schema = torch::jit::parseSchema(std::string(line));
  return functional;
}

using Table = std::map<std::string, Functional, std::less<>>;

const Table& Signatures() {
  static const Table table = [] {
    Table all;
    for (std::string_view rest = kSignatures; !rest.empty();) {
      const std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(std::min(rest.size(), line.size() + 1));
      if (line.empty() || line.starts_with("#")) continue;
      Functional functional = ReadLine(line);
      all.emplace(functional.name, std::move(functional));
    }
    return all;
  }();
  return table;
}

// ---- Functions that the bodies can call

/// aten.NAME(...) calls an operator.
int CallFromBody(lua_State* L) {
  const auto& op = *static_cast<const Operator*>(lua_touserdata(L, lua_upvalueindex(1)));
  return CallOperator(L, op, ReadArguments(L), running);
}

/// __index of aten: makes the function for an operator when it is first used.
int FindForBody(lua_State* L) {
  const std::string name(TextAt(L, 2));
  const Operator* op = FindAnyOperator(name);
  STRATA_CHECK(op != nullptr) << name;
  lua_settop(L, 2);
  lua_pushlightuserdata(L, const_cast<Operator*>(op));
  lua_pushcclosure(L, Bound<CallFromBody>, 1);
  lua_pushvalue(L, -1);
  lua_insert(L, 2);
  lua_rawset(L, 1);
  return 1;
}

/// fail(...) raises an error at the script's line. Its arguments are joined to the message.
int Fail(lua_State* L) {
  std::string text(running);
  text += ": ";
  for (int i = 1; i <= lua_gettop(L); ++i) {
    text += lua_type(L, i) == LUA_TSTRING ? std::string(TextAt(L, i)) : Show(L, i);
  }
  throw ConfigError(text);
}

/// one_of(argument, word, {words}) returns the position of the word, from 0, which is the number
/// that operators take for it.
int OneOf(lua_State* L) {
  const std::string word(TextAt(L, 2));
  std::vector<std::string> words;
  for (int i = 1; i <= static_cast<int>(lua_objlen(L, 3)); ++i) {
    lua_rawgeti(L, 3, i);
    words.emplace_back(TextAt(L, -1));
    if (words.back() == word) {
      lua_pushinteger(L, i - 1);
      return 1;
    }
  }
  throw ConfigError(Str(running, ": ", TextAt(L, 1), " must be one of \"", Join(words, "\", \""),
                        "\", got \"", word, "\"", DidYouMean(word, words)));
}

/// refuse_all_pairs(name, tensor, name, tensor, ...) calls RefuseAllPairs().
int RefuseAllPairsForBody(lua_State* L) {
  std::vector<NamedTensor> tensors;
  for (int i = 1; i < lua_gettop(L); i += 2) {
    tensors.push_back({std::string(TextAt(L, i)), TensorArgument(L, i + 1, "a tensor")});
  }
  RefuseAllPairs(running, tensors);
  return 0;
}

int NoGradForBody(lua_State* L) {
  const at::NoGradGuard guard;
  CallNested(L, 0, 0);
  return 0;
}

/// Pushes the table of globals that the bodies see.
void PushBodyGlobals(lua_State* L) {
  lua_newtable(L);
  for (const char* name : {"ipairs", "pairs", "select", "type", "unpack"}) {
    lua_getglobal(L, name);
    lua_setfield(L, -2, name);
  }
  const NamedFunction functions[] = {{"fail", Bound<Fail>},
                                     {"one_of", Bound<OneOf>},
                                     {"no_grad", Bound<NoGradForBody>},
                                     {"refuse_all_pairs", Bound<RefuseAllPairsForBody>}};
  SetFunctions(L, functions);
  lua_newtable(L);
  lua_newtable(L);
  lua_pushcfunction(L, Bound<FindForBody>);
  lua_setfield(L, -2, "__index");
  lua_setmetatable(L, -2);
  lua_setfield(L, -2, "aten");
}

/// The function F.name for a body. Upvalues: the functional, the body.
int CallBody(lua_State* L) {
  const auto& functional = *static_cast<const Functional*>(lua_touserdata(L, lua_upvalueindex(1)));
  const Running guard(functional.name);
  const CallArguments arguments = ReadArguments(L);
  const int before = lua_gettop(L);
  lua_pushvalue(L, lua_upvalueindex(2));
  const int count = PushFitted(L, *functional.schema, functional.name, arguments);
  CallNested(L, count, LUA_MULTRET);
  return lua_gettop(L) - before;
}

}  // namespace

const Functional* FindFunctional(std::string_view name, bool method) {
  const auto found = Signatures().find(name);
  if (found == Signatures().end() || (method && !found->second.of_torch)) return nullptr;
  return &found->second;
}

std::vector<const Functional*> AllFunctionals() {
  std::vector<const Functional*> all;
  for (const auto& [name, functional] : Signatures()) {
    if (!name.starts_with(kInitPrefix)) all.push_back(&functional);
  }
  return all;
}

std::vector<std::string> InitNames() {
  std::vector<std::string> names;
  for (const auto& [name, functional] : Signatures()) {
    if (name.starts_with(kInitPrefix)) names.push_back(name.substr(kInitPrefix.size()));
  }
  return names;
}

void OpenFunctional(lua_State* L) {
  LoadText(L, kBodies, kOwnChunk);
  PushBodyGlobals(L);
  lua_setfenv(L, -2);
  lua_call(L, 0, 1);
  lua_setfield(L, LUA_REGISTRYINDEX, kRegistryBodies);
}

bool PushFunctional(lua_State* L, const Functional& functional) {
  lua_getfield(L, LUA_REGISTRYINDEX, kRegistryBodies);
  lua_getfield(L, -1, functional.name.c_str());
  lua_remove(L, -2);
  if (lua_isnil(L, -1)) {
    lua_pop(L, 1);
    return false;
  }
  lua_pushlightuserdata(L, const_cast<Functional*>(&functional));
  lua_insert(L, -2);
  lua_pushcclosure(L, Bound<CallBody>, 2);
  return true;
}

const Functional* FunctionalAt(lua_State* L, int index) {
  if (lua_tocfunction(L, index) != Bound<CallBody>) return nullptr;
  lua_getupvalue(L, index, 1);
  const auto* functional = static_cast<const Functional*>(lua_touserdata(L, -1));
  lua_pop(L, 1);
  return functional;
}

}  // namespace strata::lua
