// WeightMap: the correspondence between the tensors of a published model and those of a job, in
// both directions: names by patterns, layouts by a few operations. It is data: a table of rules,
//
//   {"h.{i}.attn.in_proj_weight", "[transformer.]h.{i}.attn.c_attn.weight", transpose=true}
//
// with our name first, then theirs, which may be several. The first rule that matches a name is
// used.
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

/// A rule: ours = a part of (theirs, each transposed, joined along dim).
struct MapRule {
  NamePattern ours;
  std::vector<NamePattern> theirs;  ///< several are joined along `dim`
  bool transpose = false;           ///< for a matrix whose two dims are swapped in theirs
  int dim = 0;
  /// Ours is the `part`-th of `parts` equal parts of theirs along `dim`.
  int part = 0;
  int parts = 1;
  /// True if theirs belongs to another rule, and ours is a second name for it.
  bool tied = false;
};

class WeightMap {
 public:
  /// Returns the right side of a rule for one of our names: {"theirs", transpose=true}; null =
  /// there is no rule.
  using Function = std::function<Value(const std::string& ours)>;

  /// Without a map: names are the same on both sides.
  WeightMap();
  explicit WeightMap(Function function) : function_(std::move(function)) {}
  /// Reads a map: the name of a built-in one, a table of rules with `ignore` and `config`, or a
  /// function of the script, which `call` calls. `ignore` is a list of patterns of theirs that are
  /// not needed, and of pairs {copy, of}: a copy is not needed because it equals another tensor.
  /// Null gives WeightMap(). Throws ConfigError for an unknown name, with the nearest one, and for
  /// an invalid rule.
  static WeightMap From(const Value& value, const std::function<Value(const Value::List&)>& call);

  /// The rule for one of our names. `theirs` has, for each of the rule's patterns, the names that
  /// it can stand for.
  struct Found {
    MapRule rule;
    std::vector<std::vector<std::string>> theirs;
  };
  std::optional<Found> Find(const std::string& ours) const;
  bool Ignores(std::string_view theirs) const;
  /// If a tensor of theirs is a copy of another one, the possible names of that other tensor;
  /// otherwise none.
  std::optional<std::vector<std::string>> CopyOf(std::string_view theirs) const;
  /// The content of config.json for the model, for WritePublished(); null if the map has none.
  const Value& config() const { return config_; }
  bool is_function() const { return static_cast<bool>(function_); }

 private:
  void ReadIgnored(const Value& value);

  std::vector<MapRule> rules_;
  std::vector<NamePattern> ignored_;
  // Pairs {copy, of}: the first equals the second.
  std::vector<std::pair<NamePattern, NamePattern>> copies_;
  Value config_;
  Function function_;
};

/// The built-in maps, by name, as the tables that scripts see: strata.maps.gpt2.
const std::vector<std::pair<std::string, Value>>& BuiltInMaps();

}  // namespace strata
