// Classes are matched by name. Test data whose classes have other numbers is renumbered when it is
// opened; data that cannot be matched is refused: a class that the training lacks, or labels that a
// function of the script may have changed.
#include "engine/job/class_names.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/job/table_encoding.h"

namespace strata {
namespace {

/// The classes for a message: "data.test has bird, cat, ... (120 classes)".
std::string ListOf(const NamedClasses& classes) {
  constexpr size_t kShown = 10;
  const auto& names = classes.names;
  const auto shown = static_cast<ptrdiff_t>(std::min(kShown, names.size()));
  const std::vector<std::string> first(names.begin(), names.begin() + shown);
  return Str(classes.whose, " has ", Join(first, ", "),
             names.size() > kShown ? Str(", ... (", names.size(), " classes)") : "");
}

bool AreLabels(const TensorSpecs& targets) { return targets == TensorSpecs{{{}, DType::kInt64}}; }

DataFacts WithoutNames(DataFacts facts) {
  facts.class_names.clear();
  facts.names_before_map.clear();
  facts.encoding.clear();
  return facts;
}

/// Returns the facts of the data, and removes class names and encoding from the facts in its
/// options.
DataFacts TakeFacts(DataSpec& spec) {
  const Value* given = spec.options.Find("facts");
  if (!given) return {};
  DataFacts facts = FactsOf(spec);
  spec.options.Set("facts", ToValue(WithoutNames(facts)));
  return facts;
}

}  // namespace

std::vector<int64_t> NumbersOfClasses(const NamedClasses& theirs, const NamedClasses& ours) {
  const auto refuse = [&](const std::string& why) {
    throw ConfigError(Str(theirs.whose, " has ", why, ": ", ListOf(theirs), "; ", ListOf(ours)));
  };
  if (!AreLabels(theirs.targets)) {
    refuse(Str("other classes than ", ours.whose, ", and targets that are no classes any more"));
  }
  std::vector<int64_t> numbers;
  for (const std::string& name : theirs.names) {
    const auto found = std::ranges::find(ours.names, name);
    if (found == ours.names.end()) {
      refuse(Str("the class \"", name, "\", which ", ours.whose, " has not"));
    }
    numbers.push_back(found - ours.names.begin());
  }
  return numbers;
}

void RequireAlike(const NamedFacts& ours, const NamedFacts& theirs) {
  if (HasOtherNumbers(ours.facts.encoding, theirs.facts.encoding)) {
    throw ConfigError(Str(theirs.whose, " makes other numbers of its cells than ", ours.whose,
                          ": by other columns, words, means or normalise; like = \"FILE\" in ",
                          "strata.data.csv gives it the columns, words and means of that file"));
  }
  const auto &before = ours.facts.names_before_map, &others = theirs.facts.names_before_map;
  const bool is_mapped = ours.facts.class_names != before || theirs.facts.class_names != others;
  if (!is_mapped || before.empty() || others.empty() || before == others) return;
  if (!AreLabels(ours.facts.targets) || !AreLabels(theirs.facts.targets)) return;
  throw ConfigError(Str(theirs.whose, " has other classes than ", ours.whose, ": ",
                        ListOf({theirs.whose, others, {}}), "; ", ListOf({ours.whose, before, {}}),
                        "; behind map they have no names by which they could be matched"));
}

void MatchClasses(DataSpec& train, DataSpec& test) {
  const DataFacts ours = TakeFacts(train);
  DataFacts theirs = TakeFacts(test);
  RequireAlike({"data.train", ours}, {"data.test", theirs});
  const std::vector<std::string>& names = ours.class_names;
  train.class_names = names.empty() ? ours.names_before_map : names;
  train.encoding = ours.encoding;
  if (names.empty() || theirs.class_names.empty() || names == theirs.class_names) return;
  NumbersOfClasses({"data.test", theirs.class_names, theirs.targets},
                   {"data.train", names, ours.targets});
  theirs = WithoutNames(std::move(theirs));
  theirs.classes = static_cast<int64_t>(names.size());
  test.options.Set("facts", ToValue(theirs));
  test.options.Set("class_names", Value::List(names.begin(), names.end()));
}

}  // namespace strata
