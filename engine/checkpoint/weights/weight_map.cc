// Field tables declare what a rule may contain, so a mistake in a rule gives the same kind of error
// as one in any call.
#include "engine/checkpoint/weights/weight_map.h"

#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"

namespace strata {
namespace {

const FieldTable& SourceFields() {
  static const FieldTable fields = {
      Field::Any("theirs", "the name of the published tensor, or a list of names"),
      Field::Bool("transpose", "theirs has its two dims the other way round")
          .NamedOnly()
          .Default(false),
      Field::Int("dim", "along which several are joined, or one is cut")
          .NamedOnly()
          .AtLeast(0)
          .AtMost(15)
          .Default(0),
      Field::Shape("part", "{k, n}: ours is part k (from 0) of n equal ones")
          .NamedOnly()
          .AtLeast(0)
          .Optional(),
      Field::Bool("tied", "theirs is another rule's as well: nothing is written for it")
          .NamedOnly()
          .Default(false),
  };
  return fields;
}

const FieldTable& RuleFields() {
  static const FieldTable fields = [] {
    FieldTable all = {Field::String("ours", "the name in the job")};
    for (const Field& field : SourceFields()) all.push_back(field);
    return all;
  }();
  return fields;
}

const FieldTable& MapFields() {
  static const FieldTable fields = {
      Field::Any("ignore",
                 "a list of patterns of theirs that nobody needs; {copy, of}: as it is the same")
          .NamedOnly()
          .Optional(),
      Field::Any("config", "what config.json says").NamedOnly().Optional(),
  };
  return fields;
}

std::vector<NamePattern> PatternsOf(const Value& value, const char* what) {
  std::vector<NamePattern> patterns;
  for (const Value& text : value.is_list() ? value.as_list() : Value::List{value}) {
    if (!text.is_string()) {
      throw ConfigError(Str("a map's ", what, " must be names, got ", text.Describe()));
    }
    patterns.emplace_back(text.as_string());
  }
  return patterns;
}

MapRule ReadRule(const std::string& ours, const Value& table) {
  MapRule rule = {.ours = NamePattern(ours), .theirs = PatternsOf(table["theirs"], "theirs")};
  rule.transpose = table["transpose"].as_bool();
  rule.dim = static_cast<int>(table["dim"].as_int());
  rule.tied = table["tied"].as_bool();
  if (!table["part"].is_null()) {
    const std::vector<int64_t> part = table["part"].as_ints();
    if (part.size() != 2 || part[0] >= part[1] || part[1] > 1000) {
      throw ConfigError(
          Str("a map's part is {k, n} with k from 0 to n - 1, got ", table["part"].ToLua()));
    }
    rule.part = static_cast<int>(part[0]);
    rule.parts = static_cast<int>(part[1]);
  }
  return rule;
}

Call MapCall(const char* subject, const Value& value) {
  Call call = CallOf(value);
  call.subject = subject;
  return call;
}

}  // namespace

WeightMap::WeightMap() {
  rules_.push_back({.ours = NamePattern("{name*}"), .theirs = {NamePattern("{name*}")}});
}

WeightMap WeightMap::From(const Value& value,
                          const std::function<Value(const Value::List&)>& call) {
  WeightMap map;
  if (value.is_null()) return map;
  if (value.is_function()) {
    map.function_ = [call](const std::string& ours) { return call({ours}); };
    return map;
  }
  if (value.is_string()) {
    std::vector<std::string> names;
    for (const auto& [name, table] : BuiltInMaps()) {
      if (name == value.as_string()) return From(table, call);
      names.push_back(name);
    }
    throw ConfigError(
        Str("there is no map \"", value.as_string(), "\"", DidYouMean(value.as_string(), names)));
  }
  Call rules = MapCall("a map of weights", value);
  const Value::List given = std::exchange(rules.positional, {});
  const Value options = CanonicalizeGiven(MapFields(), rules);
  map.rules_.clear();
  for (const Value& rule : given) {
    const Value table = Canonicalize(RuleFields(), MapCall("a map's rule", rule));
    map.rules_.push_back(ReadRule(table["ours"].as_string(), table));
  }
  if (!options["ignore"].is_null()) map.ReadIgnored(options["ignore"]);
  map.config_ = options["config"];
  return map;
}

void WeightMap::ReadIgnored(const Value& value) {
  for (const Value& item : value.is_list() ? value.as_list() : Value::List{value}) {
    std::vector<NamePattern> patterns = PatternsOf(item, "ignore");
    if (!item.is_list()) {
      ignored_.push_back(std::move(patterns[0]));
    } else if (patterns.size() == 2) {
      copies_.emplace_back(std::move(patterns[0]), std::move(patterns[1]));
    } else {
      throw ConfigError(Str("a map's ignore has names and {copy, of}, got ", item.ToLua()));
    }
  }
}

std::optional<WeightMap::Found> WeightMap::Find(const std::string& ours) const {
  const auto fill = [](const MapRule& rule, const NamePattern::Places& places) {
    Found found = {rule, {}};
    for (const NamePattern& theirs : rule.theirs) found.theirs.push_back(theirs.Fill(places));
    return found;
  };
  if (function_) {
    const Value source = function_(ours);
    if (source.is_null()) return std::nullopt;
    const Value given = source.is_list() ? Value(Value::List{source}) : source;
    return fill(ReadRule(ours, Canonicalize(SourceFields(), MapCall("what a map gave", given))),
                {});
  }
  for (const MapRule& rule : rules_) {
    const auto places = rule.ours.Match(ours);
    if (places) return fill(rule, *places);
  }
  return std::nullopt;
}

bool WeightMap::Ignores(std::string_view theirs) const {
  for (const NamePattern& pattern : ignored_) {
    if (pattern.Match(theirs)) return true;
  }
  return CopyOf(theirs).has_value();
}

std::optional<std::vector<std::string>> WeightMap::CopyOf(std::string_view theirs) const {
  for (const auto& [copy, of] : copies_) {
    if (const auto places = copy.Match(theirs)) return of.Fill(*places);
  }
  return std::nullopt;
}

}  // namespace strata
