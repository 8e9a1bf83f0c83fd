// WeightMap: how the tensors of a published model become those of a job's, and back: names by
// patterns, layouts by a few operations. It is data: a table of rules,
//
//   {"h.{i}.attn.in_proj_weight", "[transformer.]h.{i}.attn.c_attn.weight", transpose=true}
//
// ours first, then theirs, which may be several. The first rule that fits a name holds.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/base/value.h"
#include "engine/checkpoint/weights/name_pattern.h"

namespace strata {

/// ours = part of (theirs, each transposed, side by side along dim).
struct MapRule {
  NamePattern ours;
  std::vector<NamePattern> theirs;  ///< several are joined along `dim`
  bool transpose = false;           ///< of two dims: theirs is the product's other factor
  int dim = 0;
  /// ours is the `part`-th of `parts` equal parts of theirs along `dim`.
  int part = 0;
  int parts = 1;
  bool tied = false;  ///< theirs belongs to another rule; this is a second name of it
};

class WeightMap {
 public:
  /// Gives the right side of a rule for one of our names: {"theirs", transpose=true}; null = none.
  using Function = std::function<Value(const std::string& ours)>;

  /// No map: names are the same.
  WeightMap();
  /// Reads a map: the name of a built-in one, a table of rules with `ignore` (a list of patterns of
  /// theirs that nobody needs, and of {copy, of}: it is the same as another one) and `config`, or a
  /// function of the script, which `call` calls. Null gives WeightMap(). Throws ConfigError: an
  /// unknown name with the nearest, what is no rule.
  static WeightMap From(const Value& value, const std::function<Value(const Value::List&)>& call);

  /// The rule for one of our names, with the names that theirs may have, each as patterns fill it.
  struct Found {
    MapRule rule;
    std::vector<std::vector<std::string>> theirs;
  };
  std::optional<Found> Find(const std::string& ours) const;
  bool Ignores(std::string_view theirs) const;
  /// A tensor of theirs that nobody needs because it is the same as another one: the names that
  /// this may have. None for others.
  std::optional<std::vector<std::string>> CopyOf(std::string_view theirs) const;
  /// What config.json says of the model, for WritePublished(); null = nothing.
  const Value& config() const { return config_; }
  bool is_function() const { return static_cast<bool>(function_); }

 private:
  void ReadIgnored(const Value& value);

  std::vector<MapRule> rules_;
  std::vector<NamePattern> ignored_;
  std::vector<std::pair<NamePattern, NamePattern>> copies_;  // of these, the second has the same
  Value config_;
  Function function_;
};

/// The built-in maps, by name, as the tables that scripts see: strata.maps.gpt2.
const std::vector<std::pair<std::string, Value>>& BuiltInMaps();

}  // namespace strata
