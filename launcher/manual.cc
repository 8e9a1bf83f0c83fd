#include "launcher/manual.h"

#include "engine/base/share.h"
#include "engine/base/text.h"
#include "launcher/exit_codes.h"
#include "launcher/version.h"
#include "lua/prompt/catalog.h"

namespace strata::launcher {
namespace {

/// Escapes the text for roff, so that it is shown literally, including hyphens, and no line is a
/// request.
std::string Roff(const std::string& text) {
  std::string roff;
  for (const char c : text) {
    const bool begins = roff.empty() || roff.back() == '\n';
    if (begins && (c == '.' || c == '\'')) roff += "\\&";
    if (c == '\\') {
      roff += "\\e";
    } else if (c == '-') {
      roff += "\\-";
    } else {
      roff += c;
    }
  }
  return roff;
}

std::string FlagLines(const FieldTable& flags) {
  std::string text;
  const Value values = lua::FieldsValue(flags);
  for (const Value& flag : values.as_list()) {
    const char* before = flag["required"].as_bool() ? " (" : " (default ";
    text += Str(".TP\n\\fB\\-\\-", Roff(flag["name"].as_string()),
                "\\fR=", Roff(flag["takes"].as_string()), "\n", Roff(flag["help"].as_string()),
                before, Roff(flag["default"].as_string()), ")\n");
  }
  return text;
}

Value CommandValue(const Command& command) {
  return Value::MakeMap({{"name", command.name},
                         {"usage", command.usage},
                         {"summary", command.summary},
                         {"details", command.details},
                         {"flags", lua::FieldsValue(command.flags)},
                         {"takes_job", command.takes_job}});
}

}  // namespace

std::string ManualPage(const std::vector<Command>& commands) {
  std::string text =
      Str(".TH STRATA 1 \"\" \"strata ", kVersion, "\"\n.SH NAME\nstrata \\- trains networks as ",
          "pipelines of stages\n.SH SYNOPSIS\n.B strata\nCOMMAND ...\n.SH DESCRIPTION\n",
          kIntroduction, "\n.SH COMMANDS\n");
  for (const Command& command : commands) {
    text += Str(".SS strata ", command.name, " ", Roff(command.usage), "\n", Roff(command.details),
                "\n", FlagLines(command.flags));
  }
  text +=
      Str(".SH KEYS OF A JOB\nEach is a flag of the commands that take a script, and holds over ",
          "the script's.\n", FlagLines(JobFlags()));
  text += ".SH EXIT STATUS\n";
  for (const auto& [code, means] : kExitCodes) {
    text += Str(".TP\n\\fB", Roff(code), "\\fR\n", Roff(means), "\n");
  }
  return text + ".SH SEE ALSO\nstrata help COMMAND, strata help nn.Conv2d\n";
}

Value HelpValue(const std::vector<Command>& commands) {
  Value::List described;
  for (const Command& command : commands) described.push_back(CommandValue(command));
  const std::vector<std::string> models = SharedModels();
  Value::List codes;
  for (const auto& [code, means] : kExitCodes) {
    codes.push_back(Value::MakeMap({{"code", code}, {"means", means}}));
  }
  lua::State state;
  return Merged(Value::MakeMap({{"version", kVersion},
                                {"commands", std::move(described)},
                                {"exit_codes", std::move(codes)},
                                {"models", Value::List(models.begin(), models.end())},
                                {"flags", lua::FieldsValue(JobFlags())}}),
                lua::Catalog(state));
}

}  // namespace strata::launcher
