// An override is checked against the fields of all types (of optimizer, data source, ...) that have
// its path, since the job's type is not known yet, and is stored in the nested map under its full
// path.
#include "engine/job/flags/overrides.h"

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/job_fields.h"

namespace strata {
namespace {

bool OnlyFromScript(std::string_view key) { return key == "layers" || key == "loss"; }

/// The full path of a short form: "pipe" -> "parallel.pipe". A job key of the same name takes
/// precedence.
std::string FullPath(std::string_view path) {
  std::string full = FoldedName(path);
  if (FindField(JobFields(), full)) return full;
  if (FindField(ParallelFields(), full)) return "parallel." + full;
  if (FindField(BatchFields(), full)) return "batch." + full;
  return full;
}

/// All fields at a path in the tables of all types. Each type of optimizer, data source, ... may
/// have a different field at the same path: `split` of text accepts "all", that of digits does not.
std::vector<const Field*> FieldsAt(const std::vector<const FieldTable*>& tables,
                                   std::string_view path) {
  const size_t dot = path.find('.');
  std::vector<const Field*> fields;
  for (const FieldTable* table : tables) {
    const Field* field = FindField(*table, path.substr(0, dot));
    if (field && dot != std::string_view::npos) {
      const std::vector<const Field*> inner = FieldsAt(field->members, path.substr(dot + 1));
      fields.insert(fields.end(), inner.begin(), inner.end());
    } else if (field && field->refused.empty()) {
      fields.push_back(field);
    }
  }
  return fields;
}

/// As FieldsAt(), for the full path of a job key.
std::vector<const Field*> JobFieldsAt(const std::string& full) {
  if (OnlyFromScript(full)) return {};
  return FieldsAt({&JobFields()}, full);
}

/// True if the message for `wide` also describes the values of `field`. If both are choices, the
/// choices of `field` are first added to `wide`.
bool Tells(Field& wide, Field field) {
  field.takes_none = wide.takes_none;
  if (field.Expected() == wide.Expected()) return true;
  if (field.kind != FieldKind::kChoice || wide.kind != FieldKind::kChoice) return false;
  for (const std::string& choice : field.choices) {
    const bool is_new = std::ranges::find(wide.choices, choice) == wide.choices.end();
    if (is_new) wide.choices.push_back(choice);
  }
  return true;
}

/// Refuses a value that the field of no type accepts, with a message that lists what any of them
/// would accept.
Value RefuseForAll(const std::vector<const Field*>& fields, const Value& value, const Call& call) {
  Field wide = *fields[0];
  wide.takes_none = std::ranges::any_of(fields, [](const Field* f) { return f->takes_none; });
  std::set<std::string> others;
  for (const Field* field : fields) {
    if (!Tells(wide, *field)) others.insert(field->Expected());
  }
  try {
    return CanonicalizeField(wide, value, call);
  } catch (const ConfigError& error) {
    const char* const more = others.empty() ? "" : "; another type takes ";
    throw ConfigError(Str(error.what(), more, Join(others, ", or ")));
  }
}

/// The canonical form by the first field that accepts the value. The job's type (of optimizer, ...)
/// is not known yet; the field of that type checks the value again when the job is built.
Value CanonicalizeForAny(const std::vector<const Field*>& fields, const Value& value,
                         const Call& call) {
  for (const Field* field : fields) {
    try {
      return CanonicalizeField(*field, value, call);
    } catch (const ConfigError&) {
      // Another field may accept it.
    }
  }
  return RefuseForAll(fields, value, call);
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

/// A value of a table key in the form of overrides: a map, with positions as "1", "2", ...
Value AsTable(const Value& value) {
  if (value.is_map()) return value;
  Value table = Value::MakeMap();
  const Call call = CallOf(value);
  for (size_t i = 0; i < call.positional.size(); ++i) {
    table.Set(std::to_string(i + 1), call.positional[i]);
  }
  return table;
}

/// Sets `value` at `path` inside `table`, and creates the tables on the way.
void SetBelow(Value& table, std::string_view path, const Value& value, bool is_table) {
  const size_t dot = path.find('.');
  const std::string_view head = path.substr(0, dot);
  Value inner = table[head];
  if (dot != std::string_view::npos) {
    if (!inner.is_map()) inner = Value::MakeMap();
    SetBelow(inner, path.substr(dot + 1), value, is_table);
  } else if (is_table && !value.is_function()) {
    const bool is_none = value.is_null() || value == Value("none");
    // Drops what was set before.
    if (is_none || !inner.is_map()) inner = Value::MakeMap();
    inner = Merged(std::move(inner), AsTable(is_none ? Value("none") : value));
  } else {
    inner = value;
  }
  table.Set(head, std::move(inner));
}

}  // namespace

const Field* FindJobField(std::string_view path) {
  const std::vector<const Field*> fields = JobFieldsAt(FullPath(path));
  return fields.empty() ? nullptr : fields[0];
}

std::string KeyHint(std::string_view name, std::span<const std::string> candidates,
                    size_t list_at_most) {
  const std::string path = FoldedName(name);
  const size_t leaf = path.rfind('.') + 1;  // 0 if there is no dot
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
  const std::vector<const Field*> fields = JobFieldsAt(full);
  if (fields.empty()) {
    throw ConfigError(
        Str(Place(where), subject, " has no key \"", path, "\"", KeyHint(path, JobFieldPaths())));
  }
  const bool is_table = fields[0]->kind == FieldKind::kTable;
  SetBelow(overrides, full, is_table ? value : CanonicalizeForAny(fields, value, call), is_table);
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
