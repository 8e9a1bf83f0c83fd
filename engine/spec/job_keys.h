// The keys of one job as a script and its overrides give them. Used by BuildJob only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "engine/spec/build_job.h"
#include "engine/spec/fields.h"
#include "engine/spec/job_fields.h"

namespace strata {

/// Reads keys, the overrides over the script's. Holds references to both.
class JobKeys {
 public:
  /// Throws ConfigError for unknown keys and for values that do not fit their fields; tables are
  /// checked when they are read.
  JobKeys(const RawJob& raw, const Value& overrides);

  const std::string& where() const { return raw_.where; }
  /// The script's path.
  const std::string& path() const { return raw_.script; }
  /// A key that is no table, in canonical form.
  const Value& operator[](const char* key) const { return flat_[key]; }
  /// What the script, or the override, says; null where it says nothing.
  const Value& script(const char* key) const { return script_[key]; }
  const Value& override_of(const char* key) const { return overrides_[key]; }
  bool overridden(const char* key) const { return !overrides_[key].is_null(); }
  bool given(const char* key) const { return overridden(key) || !script_[key].is_null(); }

  /// A table, the override's names over the script's; null when neither has it. An override with at
  /// least `enough` names says everything and stands alone.
  Value Table(const char* key, const FieldTable& fields, size_t enough = SIZE_MAX) const;
  /// Type and options of a key such as {"sgd", lr=0.1}. An override of another type drops the
  /// script's options. Left out by both: `fallback` with its defaults.
  std::pair<std::string, Value> TypedTable(const char* key, const std::vector<OptionTable>& tables,
                                           const std::string& fallback) const;

  /// A call with the job's place.
  Call CallFor(std::string subject, const Value& value) const;
  [[noreturn]] void Refuse(const std::string& message) const;
  /// Adds the job's place to errors that know nothing of it.
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
  Typed ReadTyped(const char* key, const Value& value) const;
  const OptionTable& FindType(const char* key, const std::vector<OptionTable>& tables,
                              const std::string& type) const;

  const RawJob& raw_;
  const Value& overrides_;
  Value script_;  // raw_.keys as a map
  Value flat_;
};

/// `over`'s entries over `base`'s.
Value Merged(Value base, const Value& over);

}  // namespace strata
