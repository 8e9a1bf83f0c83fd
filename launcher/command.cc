// Main(): finds the requested command, runs it, and shows the help texts.
#include "launcher/command.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <exception>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/job/job_fields.h"
#include "launcher/manual.h"
#include "launcher/version.h"
#include "lua/core/state.h"

namespace strata::launcher {
namespace {

constexpr std::string_view kMoreHelp =
    "\"strata help COMMAND\" says more about each, \"strata help nn.Conv2d\" and \"strata help "
    "schedule\" about a layer, a key of a job, a function. SCRIPT is a file, or the name of a "
    "model "
    "that comes along: digits.";
constexpr std::string_view kKeys =
    "Every key of the job is a flag too, and holds over the script's: --steps=5, "
    "--optimizer.lr=0.1, --pipe=2 (short for --parallel.pipe=2), --micro_batches=4 (short for "
    "--batch.micro_batches=4).";

const Command* Find(const std::vector<Command>& commands, const std::string& name) {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const Command& command) { return command.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

std::vector<std::string> NamesOf(const std::vector<Command>& commands) {
  std::vector<std::string> names = {"help"};
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

[[noreturn]] void ThrowUnknown(const std::vector<Command>& commands, const std::string& name) {
  if (name.ends_with(".lua")) {
    throw ConfigError(Str("\"", name, "\" is a script; did you mean \"strata train ", name, "\"?"));
  }
  throw ConfigError(
      Str("there is no command \"", name, "\"", DidYouMean(name, NamesOf(commands), 20)));
}

const Command& FindOrThrow(const std::vector<Command>& commands, const std::string& name) {
  if (const Command* command = Find(commands, name)) return *command;
  ThrowUnknown(commands, name);
}

bool AsksForHelp(const std::string& argument) { return argument == "--help" || argument == "-h"; }

/// The prompt's help for a layer, a key or a function. An unknown name is treated as the name of a
/// command.
std::string TopicHelp(const std::vector<Command>& commands, const std::string& topic) {
  const auto is_part = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
  if (!std::ranges::all_of(topic, is_part) || topic.ends_with(".lua")) {
    ThrowUnknown(commands, topic);
  }
  try {
    lua::State state;
    return state.Evaluate(topic + "?").shown + "\n";
  } catch (const Error&) {
    if (!Nearest(topic, NamesOf(commands)).empty()) ThrowUnknown(commands, topic);
    throw;
  }
}

std::string HelpText(const std::vector<Command>& commands,
                     const std::vector<std::string>& arguments) {
  if (arguments.empty()) return GeneralHelp(commands);
  const std::string& topic = arguments[0];
  if (topic == "--man") return ManualPage(commands);
  if (topic == "--json") return HelpValue(commands).ToJson(1) + "\n";
  if (const Command* command = Find(commands, topic)) {
    const bool is_key = FindField(JobFields(), topic) != nullptr;
    return CommandHelp(*command) +
           (is_key ? Str("\n\"strata help job.", topic, "\" is about the key of a job.\n") : "");
  }
  return TopicHelp(commands, topic);
}

int Help(const std::vector<Command>& commands, const std::vector<std::string>& arguments) {
  std::fputs(HelpText(commands, arguments).c_str(), stdout);
  return 0;
}

int Dispatch(const std::vector<Command>& commands, const std::vector<std::string>& arguments) {
  if (arguments.empty()) {
    std::fputs(GeneralHelp(commands).c_str(), stderr);
    return 2;
  }
  const std::string& name = arguments[0];
  const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
  if (name == "help" || AsksForHelp(name)) return Help(commands, rest);
  if (name == "--version" || name == "version") {
    std::printf("strata %s\n", kVersion);
    return 0;
  }
  const Command& command = FindOrThrow(commands, name);
  // A command that takes no job (`run`) accepts --help only directly after its name, because later
  // flags belong to the file that it runs.
  const bool own_help = !rest.empty() && AsksForHelp(rest[0]);
  if (own_help || (command.takes_job && std::any_of(rest.begin(), rest.end(), AsksForHelp))) {
    return Help(commands, {name});
  }
  return command.run(command, rest);
}

int Fail(int code, const std::string& text) {
  std::fflush(stdout);
  std::fprintf(stderr, "strata: %s\n", text.c_str());
  return code;
}

/// The exit code of a command. It becomes 1 if the command succeeded but its output could not be
/// written.
int Flushed(int code) {
  const bool arrived = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  return arrived || code != 0 ? code : Fail(1, "cannot write to standard output");
}

}  // namespace

FieldTable JobFlags() {
  FieldTable fields = JobFields();
  std::erase_if(fields, [](const Field& field) {
    const bool only_in_scripts = field.name == "layers" || field.name == "loss";
    return only_in_scripts || field.kind == FieldKind::kFunction || !field.comes_later.empty();
  });
  return fields;
}

void Print(std::string_view text) { WriteAll(STDOUT_FILENO, text, "standard output"); }

std::string GeneralHelp(const std::vector<Command>& commands) {
  std::string text = Str(Wrapped("", kIntroduction), "\nUsage: strata COMMAND ...\n\n");
  size_t widest = 0;
  for (const Command& command : commands) widest = std::max(widest, command.name.size());
  for (const Command& command : commands) {
    const std::string padding(widest - command.name.size() + 2, ' ');
    text += Wrapped(Str("  ", command.name, padding), command.summary);
  }
  return Str(text, "\n", Wrapped("", kMoreHelp));
}

std::string CommandHelp(const Command& command) {
  const std::string begin = Str("Usage: strata ", command.name, command.usage.empty() ? "" : " ");
  std::string details = command.details;
  std::ranges::replace(details, '\n', ' ');
  std::string text = Str(Wrapped(begin, command.usage), "\n", Wrapped("", details));
  FieldTable own = command.flags;
  std::erase_if(own, [](const Field& field) { return !field.comes_later.empty(); });
  if (!own.empty()) text += Str("\nFlags:\n", FieldHelp(own));
  if (command.takes_job) text += Str("\n", Wrapped("", kKeys), FieldHelp(JobFlags()));
  return text;
}

int Main(const std::vector<Command>& commands, const std::vector<std::string>& arguments) {
  try {
    return Flushed(Dispatch(commands, arguments));
  } catch (const ConfigError& error) {
    return Fail(2, error.what());
  } catch (const Error& error) {
    return Fail(1, error.what());
  } catch (const std::exception& error) {
    return Fail(1, Str("a bug in Strata: ", error.what()));
  }
}

}  // namespace strata::launcher
