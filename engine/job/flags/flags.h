// Flags: reads the command line behind SCRIPT. A flag belongs to the command (its own flags), to
// the job (every key is a flag), or to the script (the options that it declares with
// strata.options). A script's options are known only while it runs, so the reading has three
// phases:
//   Flags flags(arguments, own_fields);        // before the script: own flags and job overrides
//   flags.TakeOptions(defaults) ...            // in the script: strata.options{...}, any number
//   flags.CheckAllTaken();                     // after the script: unknown flags are an error
// Forms: --key=value; --key value, if the value does not begin with "--"; --bool and --no-bool; and
// --key without a value, if its field has a Field::flag_value. In names '-' equals '_'. The
// elements of a list are separated by commas. If a flag is given twice, the last one counts, except
// that the command's own flags of any kind (kAny) collect their values.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"

namespace strata {

/// Settings of a script from outside: values for its options and for its job's keys. They come from
/// the command line behind SCRIPT (Flags), from the table given to strata.load (TableSettings), or
/// from the command line of `strata run` (ArgumentSettings).
class Settings {
 public:
  virtual ~Settings() = default;

  /// The job overrides for BuildJob().
  const Value& job() const { return job_; }

  /// The texts of all values on the command line. A script may read files that are among them.
  const std::vector<std::string>& given() const { return given_; }

  /// Returns the values of strata.options{cifar="", classes=10}: the same names with the values
  /// that were set, or their defaults. A value has its default's type. May be called any number of
  /// times. Throws ConfigError for a value of another type, and for an option with a job key's
  /// name.
  Value TakeOptions(const Value& defaults, const std::string& where);

 protected:
  struct Option {
    std::string name;
    Value fallback;
    Field field;  ///< the values that it takes, derived from its default
  };

  Settings() : job_(Value::MakeMap()) {}

  /// The value that was set for an option; none if it was not set.
  virtual std::optional<Value> Take(const Option& option) = 0;
  /// The field of the job key or command flag with this name; null if the script may use the name
  /// for an option.
  virtual const Field* FieldOf(std::string_view name) const;

  Value job_;
  std::vector<std::string> given_;
  std::vector<std::string> option_names_;  ///< of all options that the script declared
};

/// True for the texts that mean a boolean, such as "true", "off" and "yes".
bool IsBoolText(const std::string& text);
/// The name without "no_": "losses" for "no_losses"; "" for a name that does not begin with it.
std::string_view NegatedName(std::string_view name);
/// Reads a flag's text as the value of an option with this default. `subject` as in Call.
Value OptionOfText(const Field& field, const Value& fallback, const std::string& text,
                   const std::string& subject);

class Flags : public Settings {
 public:
  /// Reads the arguments. If a name is both in `own_fields` and a job key, the flag is the
  /// command's. Throws ConfigError for a missing value and for one that does not fit its flag.
  Flags(const std::vector<std::string>& arguments, FieldTable own_fields);

  /// The command's own flags in canonical form, with defaults.
  const Value& own() const { return own_; }
  /// The arguments that are not flags, in order.
  const std::vector<std::string>& rest() const { return rest_; }

  /// Throws ConfigError for the first flag that the command, the job and the script do not know,
  /// with the nearest name among the flags of all three.
  void CheckAllTaken() const;

 private:
  struct Flag {
    std::string name;  // '-' is replaced by '_'
    std::string text;
    bool has_text = false;  // false for --name without a value
    bool taken = false;
  };

  const Field* FieldOf(std::string_view name) const override;
  std::optional<Value> Take(const Option& option) override;
  Flag Read(const std::vector<std::string>& arguments, size_t& i) const;
  void Assign(Flag flag, Value& own);

  FieldTable own_fields_;
  Value own_;
  std::vector<std::string> rest_;
  // Neither the command's nor the job's flags; the script may take them.
  std::vector<Flag> unclaimed_;
};

/// The table in strata.load(path, {depth=2, steps=5}).
class TableSettings : public Settings {
 public:
  /// Throws ConfigError for an entry without a name, and for a value that does not fit its job key.
  TableSettings(const Value& table, const std::string& subject, const std::string& where);

  /// Throws ConfigError for the first name that is neither an option of `script` nor a job key.
  void CheckAllTaken(const std::string& script) const;

 private:
  std::optional<Value> Take(const Option& option) override;

  const std::string subject_, where_;
  Value::Map unclaimed_;
};

/// The arguments in `strata run FILE --depth=2 more`. Flags before "--" that name an option set it.
/// All other arguments go to the script. Job keys are not flags here.
class ArgumentSettings : public Settings {
 public:
  explicit ArgumentSettings(std::vector<std::string> arguments);

  /// The arguments that did not set an option.
  const std::vector<std::string>& rest() const { return arguments_; }

  /// If the script has options, throws ConfigError for the first flag that names none of them. Call
  /// it before the script starts any work, and again when it has ended.
  void CheckAllTaken() const;

 private:
  std::optional<Value> Take(const Option& option) override;

  std::vector<std::string> arguments_;
};

}  // namespace strata
