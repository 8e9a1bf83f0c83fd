// What help() says of the keys of a job.
#include "lua/library/key_help.h"

#include "engine/base/text.h"
#include "engine/schedule/generators/generators.h"
#include "engine/spec/job/data_source.h"

namespace strata::lua {

std::vector<OptionTable> TablesOf(const Field& key) {
  if (key.name == "optimizer") return OptimizerTypes();
  if (key.name == "lr_schedule") return LrScheduleTypes();
  std::vector<OptionTable> tables;
  for (const FieldTable* table : key.members) tables.push_back({"", *table});
  return tables;
}

std::string KeyHelp(const Field& key) {
  std::string text = Str("job.", key.name, ": ", key.help, "\n", FieldHelp({key}));
  if (key.name == "schedule") {
    text += Str("names: ", Join(schedule::GeneratorNames(), ", "), "\n");
  }
  if (key.name == "data") {
    std::vector<std::string> names;
    for (const DataSourceType& source : DataSourceTypes()) {
      names.push_back((source.name == "dataset" ? "strata." : "strata.data.") + source.name);
    }
    text += Str("sources: ", Join(names, ", "), ", function(i)\n");
  }
  for (const OptionTable& table : TablesOf(key)) {
    if (table.fields.empty()) continue;
    text += table.name.empty() ? Str("\n", key.name, " = {...} takes\n")
                               : Str("\n{\"", table.name, "\", ...} takes\n");
    text += FieldHelp(table.fields);
  }
  text.resize(text.find_last_not_of('\n') + 1);
  return text;
}

}  // namespace strata::lua
