// The common steps of all commands with "SCRIPT --flags": flags, configuration files, plans.
#include "launcher/commands/script_job.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/machine/gpu.h"
#include "engine/base/machine/identity.h"
#include "engine/base/share.h"
#include "engine/base/text.h"
#include "engine/job/flags/config_file.h"
#include "engine/search/plan_job.h"
#include "launcher/report/fit_report.h"

namespace strata::launcher {
namespace {

/// The short flags, as in DeepSpeed.
constexpr std::pair<const char*, const char*> kShortFlags[] = {
    {"-p", "--pipe"}, {"-H", "--hostfile"}, {"-i", "--include"}, {"-e", "--exclude"}};

std::vector<std::string> WithLongNames(std::vector<std::string> arguments) {
  for (std::string& argument : arguments) {
    if (argument == "--") break;
    for (const auto& [name, long_name] : kShortFlags) {
      if (argument == name) argument = long_name;
    }
  }
  return arguments;
}

/// The text of a flag's value.
std::string TextOf(const Value& value, const std::string& path) {
  if (value.is_bool()) return value.as_bool() ? "true" : "false";
  if (value.is_int()) return std::to_string(value.as_int());
  if (value.is_number()) return FormatDouble(value.as_double());
  if (value.is_string()) return value.as_string();
  if (value.is_null()) return "none";
  if (!value.is_list())
    throw ConfigError(Str("--config: ", path,
                          ": expected a number, a text, true, false or a list; got ",
                          value.Describe()));
  std::vector<std::string> texts;
  for (const Value& element : value.as_list()) {
    texts.push_back(TextOf(element, path));
    if (!element.is_string() || texts.back().find(',') == std::string::npos) continue;
    throw ConfigError(Str("--config: ", path, ": ", element.ToJson(), " in a list has a comma, ",
                          "which would be two texts: give it in the script"));
  }
  return Join(texts, ",");
}

/// Converts job overrides to flags: {optimizer = {"adamw", lr = 0.1}} becomes --optimizer=adamw
/// --optimizer.lr=0.1.
void AppendFlags(const Value& overrides, const std::string& prefix,
                 std::vector<std::string>& flags) {
  for (const auto& [name, value] : overrides.as_map()) {
    const bool is_type = name == "1" && !prefix.empty();
    const std::string path = is_type ? prefix.substr(0, prefix.size() - 1) : prefix + name;
    if (value.is_map()) {
      AppendFlags(value, path + ".", flags);
    } else {
      flags.push_back(Str("--", path, "=", TextOf(value, path)));
    }
  }
}

/// Reads the flags. Those from the --config file are put in front, because of two flags for the
/// same key the last one counts.
Flags ReadFlags(const Command& command, const std::vector<std::string>& arguments) {
  Flags flags(arguments, command.flags);
  const Value& config = flags.own()["config"];
  if (config.is_null()) return flags;
  std::vector<std::string> all;
  AppendFlags(ReadConfigFile(config.as_string(), flags.job()), "", all);
  all.insert(all.end(), arguments.begin(), arguments.end());
  return Flags(all, command.flags);
}

}  // namespace

std::string ScriptPath(const std::string& name) {
  const auto is_part = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  std::error_code error;
  const bool is_word = !name.empty() && std::ranges::all_of(name, is_part);
  if (!is_word || std::filesystem::is_regular_file(name, error)) return name;
  const std::string model = SharedPath(Str("models/", name, ".lua"));
  if (!model.empty()) return model;
  throw ConfigError(Str("there is no script \"", name, "\", and no model of that name",
                        DidYouMean(name, SharedModels(), 40)));
}

ScriptArguments ParseScriptArguments(const Command& command,
                                     const std::vector<std::string>& arguments) {
  Flags flags = ReadFlags(command, WithLongNames(arguments));
  const std::vector<std::string>& rest = flags.rest();
  if (rest.empty()) {
    throw ConfigError(Str("expected a script: strata ", command.name, " ", command.usage));
  }
  if (rest.size() > 1) {
    throw ConfigError(
        Str("expected one script, got ", Join(rest, " and "), "; flags begin with --"));
  }
  std::string path = ScriptPath(rest[0]);
  return {std::move(path), std::move(flags)};
}

std::vector<std::string> WithFlags(std::vector<std::string> arguments,
                                   const std::vector<std::string>& flags) {
  arguments.insert(std::ranges::find(arguments, "--"), flags.begin(), flags.end());
  return arguments;
}

Field ConfigField() {
  return Field::String("config", "a JSON file of job keys, or of DeepSpeed's; flags hold over it")
      .Optional();
}

Field ScriptTimeoutField() {
  return Field::Number("script_timeout",
                       "seconds on a processor for the script before training; 0 = no limit")
      .AtLeast(0)
      .Default(lua::kScriptSeconds);
}

Field AllowReadField() {
  return Field::Any("allow_read",
                    "a folder or file that the script may read beside its own folder, or several "
                    "with commas; may come again")
      .Optional();
}

lua::StateOptions StateOptionsOf(const Value& own_flags) {
  lua::StateOptions options;
  options.seconds = own_flags["script_timeout"].as_double();
  const Value& allowed = own_flags["allow_read"];
  if (allowed.is_null()) return options;
  const Value::List paths = allowed.is_list() ? allowed.as_list() : Value::List{allowed};
  for (const Value& path : paths) {
    if (!path.is_string()) {
      throw ConfigError(Str("--allow_read: expected a path, got ", path.Describe(),
                            "; write ./NAME for a file whose name looks like that"));
    }
    options.allow_read.push_back(path.as_string());
  }
  return options;
}

Field PrepareTimeoutField() {
  return Field::Number("prepare_timeout",
                       "seconds for evaluating, planning and measuring before the ranks start; "
                       "0 = no limit")
      .AtLeast(0)
      .Default(SupervisorOptions().prepare_seconds);
}

SupervisorOptions SupervisorOptionsOf(const Value& own_flags, OutputQueue& output) {
  return {.prepare_seconds = own_flags["prepare_timeout"].as_double(), .output = &output};
}

int Shown(Terminal& terminal, const Outcome& outcome) {
  terminal.ClearStatus();
  if (!outcome.cause.empty()) terminal.ErrorLine("strata: " + outcome.cause);
  return outcome.exit_code;
}

PlanOptions OptionsHere(const Value& own_flags, PlanOptions options) {
  const Value& nproc = own_flags["nproc"];
  options.world_size = nproc.is_null() ? 0 : static_cast<int>(nproc.as_int());
  options.gpus = GpuCount();
  const Value& hostfile = own_flags["hostfile"];
  if (hostfile.is_null()) {
    options.hosts = {{.name = HostName()}};
    return options;
  }
  options.hosts = RankHosts(ReadHosts(hostfile.as_string()));
  int slots = 0;
  for (const RankHost& host : options.hosts) slots += host.ranks;
  if (options.world_size == 0) options.world_size = slots;
  if (options.world_size != slots) {
    throw ConfigError(
        Str("--nproc=", options.world_size, ", but the host file has ", Plural(slots, "slot")));
  }
  return options;
}

Plan PlanOn(const Placement& placement, const Job& job, Script& script, PlanOptions options) {
  options.world_size = placement.world_size;
  options.gpus = GpuCount();
  options.hosts = placement.rank_hosts;
  const auto plan_job = [&] {
    return FitReport(job, options, &script).Planned([&] { return PlanJob(job, options, &script); });
  };
  if (!placement.is_part()) return plan_job();
  options.measure = {};
  const int here = placement.first.local_world_size;
  const int gpus = options.gpus;
  const bool gpu_each = HasGpuEach(here);
  // Every machine assumes a GPU for each rank, so that all make the same plan.
  if (gpu_each) options.gpus = placement.world_size;
  Plan plan = plan_job();
  if (plan.transport != "threads" || placement.world_size == 1) return plan;
  throw ConfigError(
      gpu_each || job.transport == "threads"
          ? Str("transport = \"threads\" runs all ranks in one process, but ", placement.launcher,
                " starts a process for each of the ", Plural(placement.world_size, "rank"))
          : Str("the ", Plural(here, "rank"), " of this machine would share ", Plural(gpus, "GPU"),
                ", which only threads of one process can; start as many as there are GPUs, or say ",
                "--device=cpu"));
}

}  // namespace strata::launcher
