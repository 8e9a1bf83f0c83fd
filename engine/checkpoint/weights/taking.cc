// Lists of names, exchanged between ranks as JSON.
#include "engine/checkpoint/weights/taking.h"

#include <algorithm>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/base/value.h"
#include "engine/layers/layer_types.h"
#include "engine/layers/parts.h"

namespace strata {
namespace {

constexpr std::pair<const char*, std::vector<std::string> Taken::*> kLists[] = {
    {"missing", &Taken::missing},
    {"unfit", &Taken::unfit},
    {"used", &Taken::used},
    {"excepted", &Taken::excepted}};

/// True if a BatchNorm in the layer may use its count of batches, num_batches_tracked.
bool UsesCount(const LayerSpec& layer) {
  if (layer.scripted) return true;  // its script may use the count
  const Value* momentum = layer.args.Find("momentum");
  return (momentum && momentum->is_null()) || std::ranges::any_of(layer.children, UsesCount);
}

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

std::set<std::string> TensorsThatMayMiss(const std::vector<LayerSpec>& layers) {
  std::set<std::string> names;
  const std::vector<LayerSpec> whole = InWhole(layers);
  for (size_t i = 0; i < whole.size(); ++i) {
    if (UsesCount(whole[i])) continue;
    for (const ParameterSpec& parameter : ParametersOf(whole[i])) {
      if (!parameter.name.ends_with("num_batches_tracked")) continue;
      names.insert(Str(LayerPath(whole[i], static_cast<int>(i)), ".", parameter.name));
    }
  }
  return names;
}

Taken Take(const MappedWeights& weights, const std::vector<WantedTensor>& wanted,
           std::vector<MappedTensor>& found) {
  using Kind = MappedWeights::Lookup::Kind;
  Taken taken;
  std::set<std::string> used;
  for (const WantedTensor& tensor : wanted) {
    MappedWeights::Lookup lookup = weights.Find(tensor);
    const bool misses = lookup.kind == Kind::kMissing && !tensor.may_miss;
    if (misses) taken.missing.push_back(lookup.trouble);
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

void RefuseAll(const MappedWeights& weights, const Taken& taken) {
  std::vector<std::string> theirs = weights.Unused({});
  constexpr size_t kShown = 5;
  theirs.resize(std::min(theirs.size(), kShown));
  const std::string none =
      Str(weights.source().path(), ": none of its tensors (", Join(theirs, ", "), ", ...) ");
  if (!taken.unfit.empty()) {
    throw ConfigError(Str(none, "fits; of another shape, or dtype: ", taken.unfit[0]));
  }
  if (taken.missing.empty()) {
    throw ConfigError(Str(none, "is taken: weights.except leaves out all that this job has"));
  }
  throw ConfigError(Str(none, "has the name of one of this job's (", taken.missing[0], ", ...)"));
}

}  // namespace strata
