// The command line behind SCRIPT. Three owners share it: the command (its own flags), the job
// (every key is a flag) and the script (what it declares with strata.options). A script's own
// options are known only while it runs, so this works in two phases:
//   Flags flags(arguments, own_fields);        // before: typed own flags and job overrides
//   flags.TakeOptions(defaults) ...            // while: strata.options{...}, any number of times
//   flags.CheckAllTaken();                     // after: what nobody claimed is an error
// Forms: --key=value, --key value (the value does not begin with "--"), --bool, --no-bool, --key
// for one that means something alone; '-' and '_' are the same within a name; lists with commas.
// The last of equals holds.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/fields.h"

namespace strata {

class Flags {
 public:
  /// Throws ConfigError: a value that does not fit its flag, a missing value. `own_fields` win over
  /// job keys of the same name.
  Flags(const std::vector<std::string>& arguments, FieldTable own_fields);

  /// The command's own flags, canonical, defaults included.
  const Value& own() const { return own_; }
  /// Job overrides for BuildJob().
  const Value& job() const { return job_; }
  /// Arguments that are no flags, in order.
  const std::vector<std::string>& rest() const { return rest_; }

  /// strata.options{cifar="", classes=10}: the same names with the command line's values, typed by
  /// the defaults. Throws ConfigError: a value of another type, a name that is a job key.
  Value TakeOptions(const Value& defaults, const std::string& where);

  /// Throws ConfigError for the first flag that nobody took, with the nearest name among all
  /// three owners' flags.
  void CheckAllTaken() const;

 private:
  struct Flag {
    std::string name;  // folded: '_' for '-'
    std::string text;
    bool has_text = false;  // false: --name alone
    bool taken = false;
  };

  const Field* FieldOf(std::string_view name) const;
  Flag Read(const std::vector<std::string>& arguments, size_t& i) const;
  void Assign(Flag flag, Value& own);

  FieldTable own_fields_;
  Value own_;
  Value job_;
  std::vector<std::string> rest_;
  std::vector<Flag> unclaimed_;  // neither own nor the job's: the script's, or nobody's
  std::vector<std::string> option_names_;
};

}  // namespace strata
