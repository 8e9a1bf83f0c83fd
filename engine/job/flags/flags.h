// Flags: reads the command line behind SCRIPT. A flag belongs to the command (its own flags), to
// the job (every key is a flag), or to the script (the options that it declares with
// strata.options). A script's options are known only while it runs, so the reading has three
// phases:
//   Flags flags(arguments, own_fields);        // before the script: own flags and job overrides
//   flags.TakeOptions(defaults) ...            // in the script: strata.options{...}, any number
//   flags.CheckAllTaken();                     // after the script: unknown flags are an error
// Forms: --key=value; --key value, if the value does not begin with "--"; --bool and --no-bool; and
// --key without a value, if its field has a Field::flag_value. In names '-' equals '_'. Lists have
// commas. If a flag is given twice, the last one counts.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/fields/fields.h"
#include "engine/base/value.h"

namespace strata {

/// Settings of a script from outside: values of its options and of its job's keys. They come from
/// the command line behind SCRIPT (Flags), from the table given to strata.load (TableSettings), or
/// from the command line of `strata run` (ArgumentSettings).
class Settings {
 public:
  virtual ~Settings() = default;

  /// Job overrides for BuildJob().
  const Value& job() const { return job_; }

  /// The values that the command line gave, as texts: a script may read the files among them.
  const std::vector<std::string>& given() const { return given_; }

  /// The value of strata.options{cifar="", classes=10}: the same names with the values that were
  /// set, or their defaults. A value has its default's type. May be called any number of times.
  /// Throws ConfigError for a value of another type, and for an option with a job key's name.
  Value TakeOptions(const Value& defaults, const std::string& where);

 protected:
  struct Option {
    std::string name;
    Value fallback;
    Field field;  ///< what it takes; follows from its default
  };

  Settings() : job_(Value::MakeMap()) {}

  /// The value that was set for an option; none if there is no such setting.
  virtual std::optional<Value> Take(const Option& option) = 0;
  /// The job key or the command's flag of that name; null if an option may have the name.
  virtual const Field* FieldOf(std::string_view name) const;

  Value job_;
  std::vector<std::string> given_;
  std::vector<std::string> option_names_;  ///< of all options that the script declared
};

/// True for the texts of booleans: "true", "off", "yes".
bool IsBoolText(const std::string& text);
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
    bool has_text = false;  // false: --name without a value
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

/// The table in strata.load(path, {depth=2, steps=5}).
class TableSettings : public Settings {
 public:
  /// Throws ConfigError for a table with positions, and for a value that does not fit its job key.
  TableSettings(const Value& table, const std::string& subject, const std::string& where);

  /// Throws ConfigError for the first name that is neither an option of `script` nor a job key.
  void CheckAllTaken(const std::string& script) const;

 private:
  std::optional<Value> Take(const Option& option) override;

  const std::string subject_, where_;
  Value::Map unclaimed_;
};

/// The arguments in `strata run FILE --depth=2 more`. Flags before "--" that name an option set it.
/// All other arguments go to the script. Keys of a job are no flags here.
class ArgumentSettings : public Settings {
 public:
  explicit ArgumentSettings(std::vector<std::string> arguments);

  /// The arguments that set no option.
  const std::vector<std::string>& rest() const { return arguments_; }

  /// If the script has options, throws ConfigError for the first flag that names none of them. To
  /// be called before the script starts any work, and again when it has ended.
  void CheckAllTaken() const;

 private:
  std::optional<Value> Take(const Option& option) override;

  std::vector<std::string> arguments_;
};

}  // namespace strata
