// The command `strata completion bash|zsh`, which prints a script for the shell's completion.
#include <algorithm>
#include <map>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/flags/overrides.h"
#include "launcher/command.h"
#include "launcher/manual.h"
#include "launcher/version.h"

namespace strata::launcher {
namespace {

// Both shells run the same function: zsh emulates bash's completion, but leaves --flag=value as one
// word, while bash splits it at the `=`.
constexpr const char* kFunctions = R"(
_strata() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} flag= begin= found=
  if [[ $word == --*=* ]]; then
    flag=${word%%=*} begin=${word%%=*}= word=${word#*=}
  elif [[ $word == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-1]} word=
  elif ((COMP_CWORD > 2)) && [[ ${COMP_WORDS[COMP_CWORD-1]} == = ]]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  fi
  if ((COMP_CWORD < 2)); then
    found=$_strata_commands
  elif [[ -n $flag ]]; then
    found=$(_strata_values "$command" "${flag#--}")
  else
    found=$(_strata_words "$command" "$word")
  fi
  COMPREPLY=($(compgen -P "$begin" -W "$found" -- "$word"))
  if ((${#COMPREPLY[@]} == 0)) && [[ $word != -* ]]; then
    COMPREPLY=($(compgen -P "$begin" -f -- "$word"))
  elif ((${#COMPREPLY[@]} == 1)) && [[ -n ${BASH_VERSION-} && ${COMPREPLY[0]} != *= ]]; then
    COMPREPLY=("${COMPREPLY[0]} ")
  fi
}
)";

using Names = std::vector<std::string>;

Names Sorted(Names names) {
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

/// A branch of the shell's `case`: prints the words if `pattern` matches.
std::string Branch(const std::string& pattern, const Names& words) {
  return words.empty() ? "" : Str("    ", pattern, ") echo '", Join(Sorted(words), " "), "' ;;\n");
}

Names ChoicesOf(const Value& field) {
  if (field["kind"] == Value("boolean")) return {"true", "false"};
  Names choices;
  for (const Value& choice : field["choices"].as_list()) choices.push_back(choice.as_string());
  return choices;
}

/// The possible values of each job key, by its flag. For an option that several tables have, the
/// values that any of them accepts.
std::map<std::string, Names> ChoicesOfKeys(const Value& keys) {
  std::map<std::string, Names> choices;
  const auto add = [&](const std::string& path, const Value& field) {
    for (std::string& choice : ChoicesOf(field)) choices[path].push_back(std::move(choice));
  };
  for (const Value& key : keys.as_list()) {
    const std::string& name = key["name"].as_string();
    add(name, key);
    for (const Value& table : key["tables"].as_list()) {
      for (const Value& option : table["fields"].as_list()) {
        add(Str(name, ".", option["name"].as_string()), option);
      }
    }
  }
  return choices;
}

/// The possible values of each command's flags. A command's own flag comes before a job key of the
/// same name, because the first matching branch counts.
std::string ValueBranches(const Value& help) {
  std::string branches;
  for (const Value& command : help["commands"].as_list()) {
    for (const Value& flag : command["flags"].as_list()) {
      branches +=
          Branch(Str(command["name"].as_string(), ":", flag["name"].as_string()), ChoicesOf(flag));
    }
  }
  for (const auto& [path, choices] : ChoicesOfKeys(help["keys"])) {
    branches += Branch("*:" + path, choices);
  }
  return branches;
}

/// The topics of `strata help`: commands, keys, layers, functions.
Names Topics(const Value& help) {
  Names topics;
  for (const char* kind : {"commands", "keys", "layers", "functions"}) {
    for (const Value& topic : help[kind].as_list()) topics.push_back(topic["name"].as_string());
  }
  return topics;
}

/// The words that may follow each command: its own flags and those of the job.
std::string WordBranches(const Value& help) {
  Names keys;
  for (const std::string& path : JobFieldPaths()) {
    const Field& field = *FindJobField(path);
    const bool is_flag = field.kind != FieldKind::kFunction && field.comes_later.empty();
    if (is_flag) keys.push_back(Str("--", path, "="));
  }
  Names models;
  for (const Value& model : help["models"].as_list()) models.push_back(model.as_string());
  std::string branches = Branch("help:*", Topics(help)) + Branch("completion:*", {"bash", "zsh"});
  for (const Value& command : help["commands"].as_list()) {
    const std::string& name = command["name"].as_string();
    Names flags = {"--help"};
    for (const Value& flag : command["flags"].as_list()) {
      flags.push_back(Str("--", flag["name"].as_string(), "="));
    }
    if (command["takes_job"].as_bool()) flags.insert(flags.end(), keys.begin(), keys.end());
    branches += Branch(name + ":-*", flags);
    if (command["takes_job"].as_bool()) branches += Branch(name + ":*", models);
  }
  return branches;
}

std::string Script(const std::string& shell) {
  const Value help = HelpValue(Commands());
  Names commands = {"help"};
  for (const Value& command : help["commands"].as_list()) {
    commands.push_back(command["name"].as_string());
  }
  const bool is_zsh = shell == "zsh";
  return Str(is_zsh ? "#compdef strata\n" : "", "# Completion for strata ", kVersion, " in ", shell,
             ": ",
             is_zsh ? "strata completion zsh > \"${fpath[1]}/_strata\"\n"
                    : "source <(strata completion bash)\n",
             is_zsh ? "autoload -U +X bashcompinit && bashcompinit\n" : "", "_strata_commands='",
             Join(commands, " "), "'\n_strata_values() {\n  case $1:$2 in\n", ValueBranches(help),
             "  esac\n}\n_strata_words() {\n  case $1:$2 in\n", WordBranches(help), "  esac\n}",
             kFunctions, "complete -o nospace -F _strata strata\n");
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  if (arguments.size() != 1 || (arguments[0] != "bash" && arguments[0] != "zsh")) {
    throw ConfigError(Str("expected the name of a shell: strata completion ", command.usage));
  }
  Print(Script(arguments[0]));
  return 0;
}

}  // namespace

Command CompletionCommand() {
  return {.name = "completion",
          .usage = "bash|zsh",
          .summary = "what a shell completes strata with",
          .details =
              "Prints a script for the shell: commands, their flags, keys of a job and what they\n"
              "take, models, topics of help. In bash: source <(strata completion bash).",
          .run = &Run};
}

}  // namespace strata::launcher
