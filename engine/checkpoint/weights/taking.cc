// Lists of names, as JSON between ranks.
#include "engine/checkpoint/weights/taking.h"

#include <set>
#include <utility>

#include "engine/base/text.h"

namespace strata {
namespace {

constexpr std::pair<const char*, std::vector<std::string> Taken::*> kLists[] = {
    {"missing", &Taken::missing}, {"unfit", &Taken::unfit}, {"used", &Taken::used}};

void AddOnce(std::vector<std::string>& all, const std::vector<std::string>& more) {
  std::set<std::string_view> known(all.begin(), all.end());
  for (const std::string& name : more) {
    if (known.insert(name).second) all.push_back(name);
  }
}

}  // namespace

void Taken::Add(const Taken& other) {
  for (const auto& [name, list] : kLists) AddOnce(this->*list, other.*list);
}

std::string Taken::ToJson() const {
  Value value;
  for (const auto& [name, list] : kLists) {
    value.Set(name, Value::List((this->*list).begin(), (this->*list).end()));
  }
  return value.ToJson();
}

Taken Taken::FromJson(std::string_view json) {
  const Value value = Value::FromJson(json);
  Taken taken;
  for (const auto& [name, list] : kLists) {
    for (const Value& line : value[name].as_list()) (taken.*list).push_back(line.as_string());
  }
  return taken;
}

Taken Take(const MappedWeights& weights, const std::vector<WantedTensor>& wanted,
           std::vector<MappedTensor>& found) {
  using Kind = MappedWeights::Lookup::Kind;
  Taken taken;
  std::set<std::string> used;
  for (const WantedTensor& tensor : wanted) {
    MappedWeights::Lookup lookup = weights.Find(tensor);
    if (lookup.kind == Kind::kMissing) taken.missing.push_back(lookup.trouble);
    if (lookup.kind == Kind::kUnfit) taken.unfit.push_back(lookup.trouble);
    if (lookup.kind == Kind::kFound) found.push_back(std::move(lookup.tensor));
    used.insert(lookup.theirs.begin(), lookup.theirs.end());
  }
  taken.used.assign(used.begin(), used.end());
  return taken;
}

std::vector<std::string> TroublesWith(const MappedWeights& weights, const Taken& taken) {
  std::vector<std::string> lines;
  const auto add = [&](const std::string& what, const std::vector<std::string>& names) {
    if (!names.empty()) lines.push_back(Listed(what, names));
  };
  const std::string& path = weights.source().path();
  add(Str("not in ", path, ", so with their initial values"), taken.missing);
  add("of another shape, or dtype", taken.unfit);
  add(Str("in ", path, ", and nobody takes it"),
      weights.Unused({taken.used.begin(), taken.used.end()}));
  return lines;
}

}  // namespace strata
