// Flags: reads the command line behind SCRIPT. A flag belongs to the command (its own flags), to
// the job (every key is a flag), or to the script (the options that it declares with
// strata.options). A script's options are known only while it runs, so the reading has three
// phases:
//   Flags flags(arguments, own_fields);        // before the script: own flags and job overrides
//   flags.TakeOptions(defaults) ...            // in the script: strata.options{...}, any number
//   flags.CheckAllTaken();                     // after the script: unknown flags are an error
// Forms: --key=value; --key value, if the value does not begin with "--"; --bool and --no-bool; and
// --key alone, if its field has a meaning without a value (Field::alone). In names '-' equals '_'.
// Lists have commas. If a flag is given twice, the last one counts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/spec/fields/fields.h"

namespace strata {

/// What is set of a script from outside: its own options and keys of its job. The command line
/// behind SCRIPT (Flags), the table that strata.load got, or the command line of `strata run`.
class Settings {
 public:
  virtual ~Settings() = default;

  /// Job overrides for BuildJob().
  const Value& job() const { return job_; }

  /// strata.options{cifar="", classes=10}: the same names with the values that were set, typed by
  /// the defaults. Any number of times. Throws ConfigError: a value of another type, a name that is
  /// a job key.
  Value TakeOptions(const Value& defaults, const std::string& where);

 protected:
  struct Option {
    std::string name;
    Value fallback;
    Field field;  ///< what it takes, told by its default
  };

  Settings() : job_(Value::MakeMap()) {}

  /// What was set of an option; nothing where nothing was.
  virtual std::optional<Value> Take(const Option& option) = 0;
  /// The key or flag of that name which is no option's; null where the name is free.
  virtual const Field* FieldOf(std::string_view name) const;

  Value job_;
  std::vector<std::string> option_names_;  ///< of all that were taken
};

/// "hidden_size" for "hidden-size".
std::string FoldedName(std::string_view name);
/// "losses" for "no_losses", else "".
std::string_view NegatedName(std::string_view name);
/// The value of a flag's text for an option whose default is known. `subject` as in Call.
Value OptionOfText(const Field& field, const Value& fallback, const std::string& text,
                   const std::string& subject);

class Flags : public Settings {
 public:
  /// Reads the arguments. If `own_fields` and the job have a name in common, the flag is the
  /// command's. Throws ConfigError for a missing value and for one that does not fit its flag.
  Flags(const std::vector<std::string>& arguments, FieldTable own_fields);

  /// The command's own flags in canonical form, with defaults.
  const Value& own() const { return own_; }
  /// Arguments that are no flags, in order.
  const std::vector<std::string>& rest() const { return rest_; }

  /// Throws ConfigError for the first flag that nobody took, with the nearest name among all
  /// three owners' flags.
  void CheckAllTaken() const;

 private:
  struct Flag {
    std::string name;  // with '_' for '-'
    std::string text;
    bool has_text = false;  // false: --name alone
    bool taken = false;
  };

  const Field* FieldOf(std::string_view name) const override;
  std::optional<Value> Take(const Option& option) override;
  Flag Read(const std::vector<std::string>& arguments, size_t& i) const;
  void Assign(Flag flag, Value& own);

  FieldTable own_fields_;
  Value own_;
  std::vector<std::string> rest_;
  std::vector<Flag> unclaimed_;  // neither own nor the job's: the script's, or nobody's
};

/// strata.load(path, {depth=2, steps=5}).
class TableSettings : public Settings {
 public:
  /// Throws ConfigError: positions, a job key with a value that does not fit.
  TableSettings(const Value& table, const std::string& subject, const std::string& where);

  /// Throws ConfigError for the first name that is neither an option of `script` nor a job key.
  void CheckAllTaken(const std::string& script) const;

 private:
  std::optional<Value> Take(const Option& option) override;

  const std::string subject_, where_;
  Value::Map unclaimed_;
};

/// `strata run FILE --depth=2 more`: flags that name the script's options are theirs, until "--";
/// the rest is the script's own. Keys of a job are no flags here.
class ArgumentSettings : public Settings {
 public:
  explicit ArgumentSettings(std::vector<std::string> arguments)
      : arguments_(std::move(arguments)) {}

  /// What no option has taken.
  const std::vector<std::string>& rest() const { return arguments_; }

  /// Throws ConfigError, where the script has options, for the first flag that is none of them. To
  /// be called before the script has work done, and when it has ended.
  void CheckAllTaken() const;

 private:
  std::optional<Value> Take(const Option& option) override;

  std::vector<std::string> arguments_;
};

}  // namespace strata
