// JobKeys: reads the keys of one job from the script's table and its overrides. Only BuildJob() and
// its parts use it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/job/build_job.h"
#include "engine/job/job_fields.h"

namespace strata {

/// Reads keys; overrides take precedence over the script's keys. It holds a reference to the
/// RawJob, which must outlive it.
class JobKeys {
 public:
  /// Throws ConfigError for unknown keys, and for values that do not fit their fields. Nested
  /// tables are checked later, when they are read.
  JobKeys(const RawJob& raw, const Value& overrides);

  const std::string& where() const { return raw_.where; }
  /// The script's path.
  const std::string& path() const { return raw_.script; }
  /// The value of a key that is not a table, in canonical form.
  const Value& operator[](const char* key) const { return flat_[key]; }
  /// The value that the script alone gives, and that the overrides alone give; null if they give
  /// none.
  const Value& script(const char* key) const { return script_[key]; }
  const Value& override_of(const char* key) const { return overrides_[key]; }
  bool overridden(const char* key) const { return !overrides_[key].is_null(); }
  bool given(const char* key) const { return overridden(key) || !script_[key].is_null(); }

  /// True if the override of a table replaces the script's table completely. The arguments are what
  /// each of them gives.
  using Replaces = bool (*)(const Value& script, const Value& over);
  /// The canonical table of a key. The override's names take precedence over the script's; if
  /// `replaces` is true, the script's are dropped. Null if neither has the key.
  Value Table(const char* key, const FieldTable& fields, Replaces replaces = nullptr) const;
  /// Type and options of a key such as {"sgd", lr=0.1}. An override of another type drops the
  /// script's options. If neither has the key, the result is `fallback` with its defaults.
  /// `type_name` is the name of an option that may give the type instead of the first position.
  std::pair<std::string, Value> TypedTable(const char* key, const std::vector<OptionTable>& tables,
                                           const std::string& fallback,
                                           const char* type_name = "") const;

  /// Type and options of a value such as {"adamw", lr=0.1} within a key.
  std::pair<std::string, Value> TypedValue(const char* key, const std::vector<OptionTable>& tables,
                                           const Value& value) const;

  /// The table with the name `type`. Throws ConfigError with the nearest name if there is none.
  const OptionTable& TypeIn(const char* key, const std::vector<OptionTable>& tables,
                            const std::string& type) const;
  /// Calls a function of the script while the job is built, and returns its result. Throws
  /// ConfigError if no script is running that could be called.
  Value Ask(const char* key, const FunctionRef& function, const Value::List& arguments) const;

  /// Converts the value to a call (CallOf()) at the job's place.
  Call CallFor(std::string subject, const Value& value) const;
  /// Throws ConfigError with the job's place in front of the message.
  [[noreturn]] void Refuse(const std::string& message) const;
  /// Runs `call`, and adds the job's place to a ConfigError that it throws.
  template <class F>
  auto Placed(F call) const {
    try {
      return call();
    } catch (const ConfigError& error) {
      Refuse(error.what());
    }
  }

 private:
  struct Typed;
  /// A table key with the value "none" is treated as if the script had not given it: stop = "none",
  /// --stop=none. Options that an override sets after that stay.
  void RemoveNone();
  Typed ReadTyped(const char* key, const Value& value, const char* type_name) const;

  const RawJob& raw_;
  Value overrides_;
  Value script_;  // raw_.keys as a map
  Value flat_;
};

/// The count in a value; 0 if it is null.
int64_t CountOf(const Value& value);
/// The number of steps in a value, kEveryEpoch for "epoch", or 0 for null.
int64_t EveryOf(const Value& value);
/// The text in a value; "" if it is null.
std::string TextOf(const Value& value);
/// A value that is not a list becomes a list of one item; null becomes an empty one.
LayerSelector ReadSelector(const Value& value);

}  // namespace strata
