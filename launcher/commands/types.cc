// The command `strata types`, which writes type definitions of the library for editors.
#include <algorithm>
#include <filesystem>
#include <set>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/job/flags/flags.h"
#include "launcher/command.h"
#include "launcher/manual.h"
#include "launcher/version.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

constexpr const char* kTypesFile = ".strata/strata.lua";

constexpr const char* kLuaRc = R"({
  "runtime.version": "LuaJIT",
  "runtime.builtin": {"io": "disable", "os": "disable", "debug": "disable", "ffi": "disable", "package": "disable"},
  "workspace.library": [".strata"]
}
)";

constexpr const char* kLuacheckRc =
    R"(-- What luacheck knows of scripts: plain Lua in a sandbox, strata by require. `strata types` writes the same.
std = "luajit"
ignore = {"212"}  -- arguments that a function must take, whether it needs them or not
max_line_length = 120
)";

/// The definition of the engine's tensors, whose methods are those of ATen.
constexpr const char* kTensor = R"(
--- A tensor: methods are torch.Tensor's, x:view(2, -1), counts from 0.
---@class strata.Tensor
---@field shape integer[]
---@field [string] any
---@operator add(any): strata.Tensor
---@operator sub(any): strata.Tensor
---@operator mul(any): strata.Tensor
---@operator div(any): strata.Tensor
---@operator unm: strata.Tensor
)";

/// The text, with `mark` in front of every line.
std::string Commented(const std::string& text, const std::string& mark) {
  std::string lines;
  for (const std::string& line : Split(text, '\n')) lines += Str(mark, line, "\n");
  return lines;
}

std::string OneLine(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  return text;
}

std::string TypeOfField(const Value& field) {
  const std::string& kind = field["kind"].as_string();
  std::string type = kind == "sizes"     ? "integer|integer[]"
                     : kind == "numbers" ? "number|number[]"
                     : kind == "choice"  ? ""
                                         : kind;
  if (kind == "string") return type;
  for (const Value& choice : field["choices"].as_list()) {
    type += Str(type.empty() ? "" : "|", "\"", choice.as_string(), "\"");
  }
  return kind == "any" ? "any" : type;
}

/// A class of options. All of its fields are optional, because options may also be given by
/// position.
std::string OptionsClass(const std::string& name, const Value& fields) {
  std::string text = Str("\n---@class ", name, "\n---@field [integer] any\n");
  for (const Value& field : fields.as_list()) {
    text += Str("---@field ", field["name"].as_string(), "? ", TypeOfField(field), " ",
                OneLine(field["help"].as_string()), " (", field["default"].as_string(), ")\n");
  }
  return text;
}

std::string TypeName(const std::string& type) {
  return type.empty() ? "any" : type == "layer" ? "strata.Layer" : "strata." + type;
}

/// `function NAME(...) end` with its help, preceded by the class of its options.
std::string FunctionText(const Value& function, const std::string& name) {
  const Value::List& fields = function["fields"].as_list();
  std::string options = name + ".Options";
  std::ranges::replace(options, ':', '.');
  // The table at the end of the help is left out, because the class replaces it.
  const std::string& help = function["help"].as_string();
  return Str(fields.empty() ? "" : OptionsClass(options, fields), "\n",
             Commented(help.substr(0, help.find("\nname ")), "--- "),
             fields.empty() ? "---@param ... any\n" : Str("---@param options? ", options, "\n"),
             "---@return ", TypeName(function["gives"].as_string()), "\nfunction ", name,
             fields.empty() ? "(...) end\n" : "(options) end\n");
}

std::string TypeText(const Value& type) {
  const std::string name = TypeName(type["name"].as_string());
  std::string text =
      Str("\n", Commented(type["help"].as_string(), "--- "), "---@class ", name, "\n");
  for (const Value& property : type["properties"].as_list()) {
    const std::string& path = property["name"].as_string();
    text += Str("---@field ", path.substr(path.find('.') + 1), " ",
                TypeName(property["gives"].as_string()), " ", OneLine(property["help"].as_string()),
                "\n");
  }
  std::string local = "strata_" + type["name"].as_string();
  std::ranges::replace(local, ' ', '_');
  text += Str("local ", local, " = {}\n");
  for (const Value& method : type["methods"].as_list()) {
    const std::string& path = method["name"].as_string();
    text += FunctionText(method, Str(local, path.substr(path.find(':'))));
  }
  return text;
}

/// The text of a constructor, of a layer or of data.
std::string ConstructorText(const Value& made, const std::string& help, const std::string& gives) {
  return FunctionText(
      Value::MakeMap({{"fields", made["fields"]}, {"help", help}, {"gives", gives}}),
      made["name"].as_string());
}

/// The names of the library's tables that contain functions, such as "strata.json".
std::set<std::string> TablesIn(const Value& help) {
  std::set<std::string> tables = {"strata.data"};
  for (const Value& function : help["functions"].as_list()) {
    const std::string& name = function["name"].as_string();
    for (size_t dot = name.find('.', sizeof("strata")); dot != name.npos;
         dot = name.find('.', dot + 1)) {
      tables.insert(name.substr(0, dot));
    }
  }
  return tables;
}

std::string Annotations() {
  const Value help = HelpValue(Commands());
  std::string text = Str("---@meta strata\n-- Written by `strata types`, strata ", kVersion, ".\n",
                         kTensor, "\n---@class strata.F\n---@field [string] fun(...): any\n");
  for (const Value& type : help["types"].as_list()) text += TypeText(type);
  text +=
      "\nlocal strata = {}\nstrata.nn = {}\nlocal nn = strata.nn\n---@type strata.F\nstrata.F = "
      "{}\n";
  for (const std::string& table : TablesIn(help)) text += table + " = {}\n";
  for (const Value& layer : help["layers"].as_list()) {
    text += ConstructorText(
        layer, Str(layer["call"].as_string(), "\nshapes: ", layer["shapes"].as_string()), "layer");
  }
  for (const Value& source : help["sources"].as_list()) {
    text += ConstructorText(source, source["help"].as_string(), "dataset");
  }
  for (const Value& function : help["functions"].as_list()) {
    const std::string& name = function["name"].as_string();
    if (!name.starts_with("strata.data.") && name != "strata.dataset") {
      text += FunctionText(function, name);
    }
  }
  return text + "\nreturn strata\n";
}

/// Writes a file of settings unless it exists, because the user may have written it; returns a line
/// about it.
std::string WriteNew(const fs::path& path, const std::string& text) {
  std::error_code error;
  if (fs::exists(path, error)) return Str(path.string(), ": is there, stays\n");
  WriteFile(path, text);
  return Str(path.string(), "\n");
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  const Flags flags(arguments, command.flags);
  flags.CheckAllTaken();
  if (flags.rest().size() > 1) {
    throw ConfigError(Str("expected one folder: strata types ", command.usage));
  }
  const fs::path folder = flags.rest().empty() ? "." : flags.rest()[0];
  const fs::path types = (folder / kTypesFile).lexically_normal();
  MakeFolder(types.parent_path().string());
  WriteFile(types, Annotations());
  const std::string text =
      Str(types.string(), "\n", WriteNew((folder / ".luarc.json").lexically_normal(), kLuaRc),
          WriteNew((folder / ".luacheckrc").lexically_normal(), kLuacheckRc));
  Print(text);
  return 0;
}

}  // namespace

Command TypesCommand() {
  return {
      .name = "types",
      .usage = "[FOLDER]",
      .summary = "tells editors what scripts may write",
      .details =
          "Writes into the folder (the current one) .strata/strata.lua, the library's functions,\n"
          "layers and keys with their help for the Lua language server, and .luarc.json and\n"
          ".luacheckrc where there are none. Run it again after an update of strata.",
      .run = &Run};
}

}  // namespace strata::launcher
