// The help() texts of the keys of a job.
#include "lua/library/key_help.h"

#include <algorithm>

#include "engine/base/text.h"
#include "engine/job/data_source.h"
#include "engine/job/precision.h"
#include "engine/plan/cut/cut.h"
#include "engine/schedule/generators/generators.h"
#include "engine/search/cluster/cluster.h"

namespace strata::lua {
namespace {

std::vector<std::string> DTypeNames() {
  std::vector<std::string> names;
  for (int type = 0; type <= static_cast<int>(DType::kBool); ++type) {
    names.emplace_back(DTypeName(static_cast<DType>(type)));
  }
  return names;
}

}  // namespace

std::vector<OptionTable> TablesOf(const Field& key) {
  if (key.name == "optimizer") return OptimizerTypes();
  if (key.name == "lr_schedule") return LrScheduleTypes();
  if (key.name == "adapt") return AdaptTypes();
  if (key.name == "precision") return PrecisionTypes();
  std::vector<OptionTable> tables;
  for (const FieldTable* table : key.members) tables.push_back({"", *table});
  return tables;
}

std::vector<std::string> NamesOf(const std::vector<OptionTable>& tables) {
  std::vector<std::string> names;
  for (const OptionTable& table : tables) {
    if (!table.name.empty()) names.push_back(table.name);
  }
  return names;
}

std::vector<std::string> ChoicesOf(const Field& field) {
  if (field.name == "schedule") return schedule::GeneratorNames();
  if (field.name == "partition" || field.name == "methods") {
    std::vector<std::string> names = partition::MethodNames();
    for (std::string& name : names) name.resize(std::min(name.find("REGEX"), name.size()));
    return names;
  }
  if (field.name == "cluster") return search::ClusterNames();
  if (field.kind == FieldKind::kDType) return DTypeNames();
  std::vector<std::string> names = NamesOf(TablesOf(field));
  names.insert(names.end(), field.choices.begin(), field.choices.end());
  return names;
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
