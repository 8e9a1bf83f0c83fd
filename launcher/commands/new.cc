// The command `strata new NAME`, which makes a folder with a first script.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/error.h"
#include "engine/base/fd.h"
#include "engine/base/share.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"
#include "engine/job/flags/flags.h"
#include "launcher/command.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

/// A template: the script models/new/NAME.lua and its data.
struct Template {
  const char* name;
  const char* data;     ///< its data among the program's shared files; "" = none
  const char* data_as;  ///< the data's name in the new folder
  const char* about;
};

constexpr Template kTemplates[] = {
    {"vision", "", "", "images: a small convolutional network on handwritten digits"},
    {"language", "docs/scripts.md", "text.txt", "text: a Transformer that predicts the next byte"},
    {"tabular", "models/new/houses.csv", "houses.csv",
     "rows of a CSV file: a price from words and numbers"},
};

std::vector<std::string> TemplateNames() {
  std::vector<std::string> names;
  for (const Template& entry : kTemplates) names.emplace_back(entry.name);
  return names;
}

const Template& Find(const std::string& name) {
  return *std::ranges::find_if(kTemplates,
                               [&](const Template& entry) { return entry.name == name; });
}

std::string ReadShared(const std::string& name) {
  const std::string path = SharedPath(name);
  if (path.empty())
    throw WorldError(Str(name, " does not come with this strata: see strata doctor"));
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string Readme(const std::string& name, const Template& chosen) {
  return Str("# ", name, "\n", chosen.about, ". The options stand at the top of train.lua.\n\n",
             "    strata plan train.lua                # what will run, where, how fast\n",
             "    strata train train.lua --save.dir=runs\n",
             "    strata eval train.lua --weights=runs\n");
}

int Run(const Command& command, const std::vector<std::string>& arguments) {
  const Flags flags(arguments, command.flags);
  flags.CheckAllTaken();
  if (flags.rest().size() != 1) {
    throw ConfigError(Str("expected one name: strata new ", command.usage));
  }
  const fs::path folder = flags.rest()[0];
  const Template& chosen = Find(flags.own()["template"].as_string());
  const std::string script = ReadShared(Str("models/new/", chosen.name, ".lua"));
  const std::string data = *chosen.data ? ReadShared(chosen.data) : "";
  std::error_code error;
  if (fs::exists(folder, error)) throw ConfigError(Str(folder.string(), " is there already"));
  MakeFolder(folder.string());
  WriteFile(folder / "train.lua", script);
  if (*chosen.data) WriteFile(folder / chosen.data_as, data);
  WriteFile(folder / "README.md", Readme(folder.filename().string(), chosen));
  Print(Str(folder.string(), ": ", chosen.about, "\nstrata train ", (folder / "train.lua").string(),
            "\n"));
  return 0;
}

}  // namespace

Command NewCommand() {
  return {
      .name = "new",
      .usage = "NAME [--template=vision|language|tabular]",
      .summary = "makes a folder with a script to begin with",
      .details =
          "Writes NAME/train.lua, whose options are explained, the data that it trains on, and\n"
          "a README. Nothing is replaced.",
      .flags = {Field::Choice("template", TemplateNames(), "what is learnt").Default("vision")},
      .run = &Run};
}

}  // namespace strata::launcher
