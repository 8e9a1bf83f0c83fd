// Completion at the prompt: names, members, options of the function being called, and strings. The
// text before the cursor is parsed (expression.h) for its open brackets and its last chain of
// names; the chain is then followed from value to value (follow.h) without running user code.

#include <algorithm>
#include <filesystem>

#include "engine/base/text.h"
#include "engine/schedule/generators/generators.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/core.h"
#include "lua/core/expression.h"
#include "lua/core/notes.h"
#include "lua/core/object.h"
#include "lua/core/state.h"
#include "lua/library/key_help.h"
#include "lua/library/layer_object.h"
#include "lua/prompt/follow.h"
#include "lua/prompt/help.h"

namespace strata::lua {
namespace {

constexpr const char* kKeywords[] = {"and",   "break", "do",       "else", "elseif", "end",
                                     "false", "for",   "function", "goto", "if",     "in",
                                     "local", "nil",   "not",      "or",   "repeat", "return",
                                     "then",  "true",  "until",    "while"};

constexpr size_t kMaxFiles = 10000;

using Names = std::vector<std::string>;

Names WithPrefix(Names names, std::string_view prefix) {
  std::erase_if(names, [&](const std::string& name) { return !name.starts_with(prefix); });
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

// ---- Members of values

Names KeysOf(lua_State* L, int index, bool functions_only) {
  Names names;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING || (functions_only && !lua_isfunction(L, -1))) continue;
    names.emplace_back(TextAt(L, -2));
  }
  return names;
}

/// The names that may follow the value at `index` after a dot or, if `methods`, after a colon.
Names MembersOf(lua_State* L, int index, bool methods) {
  if (lua_type(L, index) == LUA_TSTRING) {
    lua_getglobal(L, "string");
    return methods && lua_istable(L, -1) ? KeysOf(L, lua_gettop(L), true) : Names();
  }
  if (!lua_istable(L, index) || IsType(L, index))
    return methods ? ObjectMethods(L, index) : ObjectMembers(L, index);
  Names names = KeysOf(L, index, methods);
  if (!methods && IsOperators(L, index)) {
    const Names operators = OperatorNames(L);
    names.insert(names.end(), operators.begin(), operators.end());
  }
  return names;
}

/// Pushes the value of the chain's steps; false if a step does not exist.
bool PushSteps(lua_State* L, const Names& steps) {
  lua_pushvalue(L, LUA_GLOBALSINDEX);
  return std::all_of(steps.begin(), steps.end(),
                     [L](const std::string& step) { return FollowStep(L, step); });
}

Names NameCandidates(lua_State* L, const Chain& chain) {
  if (!chain.is_known || !PushSteps(L, chain.steps)) return {};
  Names names = MembersOf(L, lua_gettop(L), chain.is_method);
  if (chain.steps.empty()) names.insert(names.end(), std::begin(kKeywords), std::end(kKeywords));
  return WithPrefix(std::move(names), chain.word);
}

// ---- Options of calls. The fields of a table are known from the called function and from keys.

/// Pushes the function called with the bracket opens[k]; false if it is only known at run time.
bool PushCallee(lua_State* L, std::string_view text, const std::vector<Open>& opens, size_t k) {
  const Open* open = &opens[k];
  const auto before = [&] {
    std::string_view part = text.substr(0, open->begin - 1);
    while (!part.empty() && (part.back() == ' ' || part.back() == '\n')) part.remove_suffix(1);
    return part;
  };
  // These are the cases f({ and f(x, {
  const bool is_argument =
      k > 0 && opens[k - 1].kind == '(' && (before().ends_with('(') || before().ends_with(','));
  if (is_argument) open = &opens[k - 1];
  const Chain chain = ParseChain(before());
  if (!chain.is_known || chain.word.empty() || !PushSteps(L, chain.steps)) return false;
  return FollowStep(L, chain.word);
}

/// The fields that may be in the table opens[k]; empty if they are not known.
FieldTable FieldsOf(lua_State* L, std::string_view text, const std::vector<Open>& opens, size_t k) {
  const Open& open = opens[k];
  FieldTable fields;
  if (!open.key.empty() && k > 0) {
    const FieldTable outer = FieldsOf(L, text, opens, k - 1);
    const Field* key = FindField(outer, open.key);
    if (!key) return fields;
    for (OptionTable& table : TablesOf(*key)) {
      if (!open.first.empty() && !table.name.empty() && table.name != open.first) continue;
      for (Field& field : table.fields) fields.push_back(std::move(field));
    }
    return fields;
  }
  const int top = lua_gettop(L);
  if (PushCallee(L, text, opens, k)) {
    const auto constructor = ObjectAt<LayerConstructor>(L, -1);
    if (constructor && constructor->type) {
      fields = constructor->type->fields;
    } else if (const FieldTable* noted = NotedFields(L, -1)) {
      fields = *noted;
    }
  }
  lua_settop(L, top);
  return fields;
}

/// "kernel_size=": the names of options not yet given, if an option may begin here.
Names OptionCandidates(lua_State* L, std::string_view text, const std::vector<Open>& opens,
                       const std::string& word) {
  if (opens.empty() || opens.back().kind != '{' || !opens.back().element_key.empty()) return {};
  const Open& open = opens.back();
  const std::string_view element = text.substr(open.element);
  if (Trim(element) != word) return {};
  Names names;
  for (const std::string& name : FieldNames(FieldsOf(L, text, opens, opens.size() - 1))) {
    const bool there = std::find(open.keys.begin(), open.keys.end(), name) != open.keys.end();
    if (!there) names.push_back(name + "=");
  }
  return WithPrefix(std::move(names), word);
}

// ---- Strings

/// The choices for the string opens.back(); empty if it is more likely a file name.
Names StringChoices(lua_State* L, std::string_view text, const std::vector<Open>& opens) {
  const size_t k = opens.size() - 1;
  if (k == 0 || opens[k - 1].kind == '[') return {};
  const Open& outer = opens[k - 1];
  if (!opens[k].key.empty()) {
    const FieldTable fields = FieldsOf(L, text, opens, k - 1);
    const Field* field = FindField(fields, opens[k].key);
    return field ? ChoicesOf(*field) : Names();
  }
  if (!outer.key.empty() && k > 1) {
    const FieldTable fields = FieldsOf(L, text, opens, k - 2);
    const Field* field = FindField(fields, outer.key);
    if (!field) return {};
    const bool is_list = field->name == "methods" || field->name == "schedules";
    if (is_list) return ChoicesOf(*field);
    return outer.elements > 0 ? Names() : NamesOf(TablesOf(*field));  // optimizer = {"
  }
  if (outer.elements > 0) return {};
  if (!PushCallee(L, text, opens, k - 1)) return {};
  lua_getfield(L, LUA_REGISTRYINDEX, kLibrary);
  for (const auto& [name, choices] :
       {std::pair{"schedule", schedule::GeneratorNames()}, std::pair{"help", HelpTopics()}}) {
    lua_getfield(L, -1, name);
    if (lua_rawequal(L, -1, -3)) return choices;
    lua_pop(L, 1);
  }
  return {};
}

/// The names of files and folders for completing the part of `typed` after its last '/'; folders
/// end in '/'.
Names Files(std::string_view typed) {
  namespace fs = std::filesystem;
  const size_t slash = typed.rfind('/');
  const std::string folder = slash == typed.npos ? "." : std::string(typed.substr(0, slash + 1));
  const std::string_view name = slash == typed.npos ? typed : typed.substr(slash + 1);
  Names names;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    std::string found = file->path().filename().string();
    if (found.starts_with('.') && !name.starts_with('.')) continue;
    std::error_code ignored;
    if (file->is_directory(ignored)) found += '/';
    names.push_back(std::move(found));
    if (names.size() >= kMaxFiles) break;
  }
  return WithPrefix(std::move(names), name);
}

Completion InString(lua_State* L, std::string_view text, const std::vector<Open>& opens) {
  const std::string_view typed = text.substr(opens.back().begin);
  const Names choices = StringChoices(L, text, opens);
  if (!choices.empty()) return {opens.back().begin, WithPrefix(choices, typed)};
  const size_t slash = typed.rfind('/');
  return {opens.back().begin + (slash == typed.npos ? 0 : slash + 1), Files(typed)};
}

Completion CompleteText(lua_State* L, std::string_view text) {
  const std::vector<Open> opens = OpenBrackets(text);
  if (!opens.empty() && opens.back().kind == '"') return InString(L, text, opens);
  const Chain chain = ParseChain(text);
  Completion completion{text.size() - chain.word.size(), {}};
  if (chain.steps.empty() && chain.is_known) {
    completion.candidates = OptionCandidates(L, text, opens, chain.word);
  }
  if (completion.candidates.empty()) completion.candidates = NameCandidates(L, chain);
  return completion;
}

}  // namespace

Completion State::Complete(std::string_view line) {
  Completion completion{line.size(), {}};
  try {
    Session(*this).Run([&](lua_State* L) {
      OpenPrompt(*core_, L);
      completion = CompleteText(L, line);
    });
  } catch (const Error&) {  // A property that cannot be had, such as a plan's program.
  }
  return completion;
}

}  // namespace strata::lua
