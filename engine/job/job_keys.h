// JobKeys: reads the keys of one job from the script's table and its overrides. Only BuildJob()
// and its parts use it.
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

/// Reads keys; overrides take precedence over the script's keys. Holds a reference to the script's.
class JobKeys {
 public:
  /// Throws ConfigError for unknown keys, and for values that do not fit their fields. Tables are
  /// checked later, when they are read.
  JobKeys(const RawJob& raw, const Value& overrides);

  const std::string& where() const { return raw_.where; }
  /// The script's path.
  const std::string& path() const { return raw_.script; }
  /// A key that is no table, in canonical form.
  const Value& operator[](const char* key) const { return flat_[key]; }
  /// The value that the script alone, or the overrides alone, give; null = none.
  const Value& script(const char* key) const { return script_[key]; }
  const Value& override_of(const char* key) const { return overrides_[key]; }
  bool overridden(const char* key) const { return !overrides_[key].is_null(); }
  bool given(const char* key) const { return overridden(key) || !script_[key].is_null(); }

  /// Whether the override of a table leaves nothing of the script's, from what each of them gives.
  using Replaces = bool (*)(const Value& script, const Value& over);
  /// The canonical table of a key. The override's names take precedence over the script's, unless
  /// it `replaces` them all. Null when neither has the key.
  Value Table(const char* key, const FieldTable& fields, Replaces replaces = nullptr) const;
  /// Type and options of a key such as {"sgd", lr=0.1}. An override of another type drops the
  /// script's options. If neither has the key: `fallback` with its defaults. `type_name`: an option
  /// that says the type as well.
  std::pair<std::string, Value> TypedTable(const char* key, const std::vector<OptionTable>& tables,
                                           const std::string& fallback,
                                           const char* type_name = "") const;

  /// Type and options of a value such as {"adamw", lr=0.1} within a key.
  std::pair<std::string, Value> TypedValue(const char* key, const std::vector<OptionTable>& tables,
                                           const Value& value) const;

  /// The table of this name; refuses others with the nearest name.
  const OptionTable& TypeIn(const char* key, const std::vector<OptionTable>& tables,
                            const std::string& type) const;
  /// What a function of the script's gives while the job is made. Refuses where none can be called.
  Value Ask(const char* key, const FunctionRef& function, const Value::List& arguments) const;

  /// The value as a call (CallOf()) at the job's place.
  Call CallFor(std::string subject, const Value& value) const;
  /// Throws ConfigError with the job's place in front of the message.
  [[noreturn]] void Refuse(const std::string& message) const;
  /// Calls `call` and adds the job's place to a ConfigError that it throws.
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
  /// A table that is none is as if the script had not given it: stop = "none", --stop=none. What
  /// overrides say of it behind that stays.
  void RemoveNone();
  Typed ReadTyped(const char* key, const Value& value, const char* type_name) const;

  const RawJob& raw_;
  Value overrides_;
  Value script_;  // raw_.keys as a map
  Value flat_;
};

/// What a key without a value stands for: 0, "", no layers.
int64_t CountOf(const Value& value);
/// Steps, or kEveryEpoch of "epoch".
int64_t EveryOf(const Value& value);
std::string TextOf(const Value& value);
/// An item alone is a list of one.
LayerSelector ReadSelector(const Value& value);

}  // namespace strata
