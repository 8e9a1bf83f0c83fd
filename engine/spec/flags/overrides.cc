#include "engine/spec/flags/overrides.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/spec/job/job_fields.h"

namespace strata {
namespace {

bool OnlyFromScript(std::string_view key) { return key == "layers" || key == "loss"; }

/// The full path of a short form: "pipe" -> "parallel.pipe". A job key of the same name has
/// precedence.
std::string FullPath(std::string_view path) {
  std::string full = FoldedName(path);
  if (FindField(JobFields(), full)) return full;
  if (FindField(ParallelFields(), full)) return "parallel." + full;
  if (FindField(BatchFields(), full)) return "batch." + full;
  return full;
}

const Field* FindPath(const std::vector<const FieldTable*>& tables, std::string_view path) {
  const size_t dot = path.find('.');
  for (const FieldTable* table : tables) {
    const Field* field = FindField(*table, path.substr(0, dot));
    if (field && dot != std::string_view::npos) {
      field = FindPath(field->members, path.substr(dot + 1));
    }
    if (field && field->refused.empty()) return field;
  }
  return nullptr;
}

void AddPaths(const FieldTable& table, const std::string& prefix, std::vector<std::string>& paths) {
  for (const Field& field : table) {
    const std::string path = prefix + field.name;
    const bool known = std::find(paths.begin(), paths.end(), path) != paths.end();
    if (!field.refused.empty() || known || OnlyFromScript(path)) continue;
    paths.push_back(path);
    for (const FieldTable* members : field.members) AddPaths(*members, path + ".", paths);
  }
}

/// The value of a table in the form of overrides: a map, with positions as "1", "2", ...
Value AsTable(const Value& value) {
  if (value.is_map()) return value;
  Value table = Value::MakeMap();
  const Call call = CallOf(value);
  for (size_t i = 0; i < call.positional.size(); ++i) {
    table.Set(std::to_string(i + 1), call.positional[i]);
  }
  return table;
}

/// Sets `value` at `path` inside `table`; makes the tables on the way.
void SetBelow(Value& table, std::string_view path, const Value& value, bool is_table) {
  const size_t dot = path.find('.');
  const std::string_view head = path.substr(0, dot);
  Value inner = table[head];
  if (dot != std::string_view::npos) {
    if (!inner.is_map()) inner = Value::MakeMap();
    SetBelow(inner, path.substr(dot + 1), value, is_table);
  } else if (is_table && !value.is_function()) {
    const bool is_none = value.is_null() || value == Value("none");
    if (is_none || !inner.is_map()) inner = Value::MakeMap();  // what came before is taken back
    inner = Merged(std::move(inner), AsTable(is_none ? Value("none") : value));
  } else {
    inner = value;
  }
  table.Set(head, std::move(inner));
}

}  // namespace

const Field* FindJobField(std::string_view path) {
  const std::string full = FullPath(path);
  return OnlyFromScript(full) ? nullptr : FindPath({&JobFields()}, full);
}

std::string KeyHint(std::string_view name, std::span<const std::string> candidates,
                    size_t list_at_most) {
  const std::string path = FoldedName(name);
  const size_t leaf = path.rfind('.') + 1;  // 0 where there is no dot
  const std::string_view ours = OurKey(std::string_view(path).substr(leaf));
  const bool is_key = FindJobField(ours) || ours.find(':') != ours.npos;
  const bool is_theirs = is_key && ours.starts_with(std::string_view(path).substr(0, leaf));
  return is_theirs ? Str("; did you mean \"", ours, "\"?")
                   : DidYouMean(name, candidates, list_at_most);
}

std::vector<std::string> JobFieldPaths() {
  std::vector<std::string> paths;
  AddPaths(JobFields(), "", paths);
  AddPaths(ParallelFields(), "", paths);
  AddPaths(BatchFields(), "", paths);
  return paths;
}

void SetOverride(Value& overrides, std::string_view path, const Value& value,
                 const std::string& subject, const std::string& where) {
  const Call call = {.subject = subject, .where = where, .noun = "key"};
  const bool degree = FoldedName(path) == "data" && value.is_number();
  const std::string full = degree ? "parallel.data" : FullPath(path);
  const Field* field = FindJobField(full);
  if (!field) {
    throw ConfigError(
        Str(Place(where), subject, " has no key \"", path, "\"", KeyHint(path, JobFieldPaths())));
  }
  const bool is_table = field->kind == FieldKind::kTable;
  SetBelow(overrides, full, is_table ? value : CanonicalizeField(*field, value, call), is_table);
}

Value Overrides(const Value& keys, const std::string& where) {
  Value overrides = Value::MakeMap();
  const Call call = CallOf(keys);
  if (!call.positional.empty()) {
    throw ConfigError(Str(Place(where), "expected keys with values, such as {pipe=2}; got ",
                          call.positional[0].Describe()));
  }
  for (const auto& [path, value] : call.named) {
    SetOverride(overrides, path, value, "the job", where);
  }
  return overrides;
}

}  // namespace strata
