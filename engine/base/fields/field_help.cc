// FieldHelp(), which describes a table of fields for people, and Wrapped(), which breaks its lines.
// Both are declared in fields.h.
#include <algorithm>

#include "engine/base/fields/fields.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr size_t kColumns = 80;  // the width of a terminal

std::string DefaultText(const Field& field) {
  if (field.required) return "required";
  return field.fallback.is_null() ? "none" : field.fallback.ToLua();
}

size_t Widest(const std::vector<std::string>& lines) {
  size_t widest = 0;
  for (const std::string& line : lines) widest = std::max(widest, line.size());
  return widest;
}

/// The layout for tables that are wider than a terminal: for each field its help, followed by the
/// values that it takes.
std::string FieldList(const FieldTable& table) {
  constexpr std::string_view kName = "name";
  const size_t width = std::max(Widest(FieldNames(table)), kName.size());
  const auto begin = [width](std::string_view name) {
    return Str(name, std::string(width - name.size() + 2, ' '));
  };
  std::string text = begin(kName) + "help (takes; default)\n";
  for (const Field& field : table) {
    if (!field.refused.empty()) continue;
    const std::string otherwise = Str(field.required ? "" : "default ", DefaultText(field));
    text +=
        Wrapped(begin(field.name), Str(field.help, " (", field.Expected(), "; ", otherwise, ")"));
  }
  return text;
}

}  // namespace

std::string FieldHelp(const FieldTable& table) {
  TextTable lines({"name", "takes", "default", "help"});
  for (const Field& field : table) {
    if (!field.refused.empty()) continue;
    lines.Add({field.name, field.Expected(), DefaultText(field), field.help});
  }
  const std::string text = lines.Render();
  return Widest(Split(text, '\n')) <= kColumns ? text : FieldList(table);
}

std::string Wrapped(std::string first, std::string_view words) {
  const std::string margin(first.size(), ' ');
  std::string text, line = std::move(first);
  for (const std::string& word : Split(words, ' ')) {
    const bool is_first = line.size() == margin.size();
    if (!is_first && line.size() + 1 + word.size() > kColumns) {
      text += line + "\n";
      line = margin + word;
    } else {
      line += is_first ? word : " " + word;
    }
  }
  return text + line + "\n";
}

}  // namespace strata
