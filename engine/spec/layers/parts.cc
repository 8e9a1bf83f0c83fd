#include "engine/spec/layers/parts.h"

#include <algorithm>
#include <cmath>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/spec/layers/own_type.h"
#include "engine/spec/layers/rules.h"

namespace strata {
namespace {

std::string_view WholeType(std::string_view type) { return type.substr(0, type.find('.')); }

bool IsPart(const LayerSpec& spec) { return !spec.scripted && PartNumber(spec.type) >= 0; }
bool IsContinued(const LayerSpec& spec) { return !spec.scripted && PartNumber(spec.type) > 0; }

/// Names of a script's own are no numbers.
bool IsIndex(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}

/// The types of its parts; none where it has to stay whole.
std::vector<std::string> PartsOf(const LayerSpec& spec) {
  const bool is_bound = spec.has_scripted_forward() || spec.init.id >= 0 || OwnType(spec) ||
                        !spec.tied_key.empty() || IsPart(spec);
  std::vector<std::string> parts;
  if (is_bound) return parts;
  for (const LayerType& type : PartTypes()) {
    if (WholeType(type.name) == spec.type) parts.push_back(type.name);
  }
  return parts;
}

std::vector<std::string> TypesOf(const std::vector<LayerSpec>& layers) {
  std::vector<std::string> types;
  for (const LayerSpec& layer : layers) types.push_back(layer.scripted ? "" : layer.type);
  return types;
}

}  // namespace

const std::vector<LayerType>& PartTypes() {
  static const std::vector<LayerType> types = layers::TransformerParts();
  return types;
}

int PartNumber(std::string_view type) {
  if (type.find('.') == type.npos) return -1;
  int number = 0;
  for (const LayerType& part : PartTypes()) {
    if (part.name == type) return number;
    if (WholeType(part.name) == WholeType(type)) ++number;
  }
  return -1;
}

std::vector<LayerSpec> InParts(const std::vector<LayerSpec>& layers,
                               const std::function<bool(int)>& wants) {
  std::vector<LayerSpec> list;
  for (int i = 0; i < static_cast<int>(layers.size()); ++i) {
    LayerSpec spec = layers[static_cast<size_t>(i)];
    const std::vector<std::string> parts = wants(i) ? PartsOf(spec) : std::vector<std::string>();
    spec.name = LayerPath(spec, i);
    if (parts.empty()) list.push_back(spec);
    for (const std::string& part : parts) {
      spec.type = part;
      list.push_back(spec);
    }
  }
  return list.size() == layers.size() ? layers : list;
}

std::vector<LayerSpec> InWhole(const std::vector<LayerSpec>& layers) {
  if (!HasParts(layers)) return layers;
  std::vector<LayerSpec> list;
  for (const LayerSpec& layer : layers) {
    if (IsContinued(layer)) continue;
    LayerSpec& whole = list.emplace_back(layer);
    if (IsPart(whole)) whole.type = WholeType(layer.type);
    if (IsIndex(whole.name)) whole.name.clear();
  }
  return list;
}

bool HasParts(const std::vector<LayerSpec>& layers) { return std::ranges::any_of(layers, IsPart); }

int LayerNumber(const std::vector<LayerSpec>& layers, int position) {
  const auto size = static_cast<int>(layers.size());
  const auto begin = layers.begin();
  const bool is_inside = position < size && IsContinued(layers[static_cast<size_t>(position)]);
  return position - static_cast<int>(std::count_if(begin, begin + position, IsContinued)) -
         (is_inside ? 1 : 0);
}

std::string PartPath(const LayerSpec& spec, int index) {
  const std::string path = LayerPath(spec, index);
  return IsPart(spec) ? path + spec.type.substr(spec.type.find('.')) : path;
}

CutNames::CutNames(const std::vector<LayerSpec>& layers) : CutNames(TypesOf(layers)) {}

CutNames::CutNames(const std::vector<std::string>& types) {
  int layer = -1;
  for (const std::string& type : types) {
    const int part = PartNumber(type);
    if (part <= 0) ++layer;
    names_.push_back(part > 0 ? Str(layer, ".", part) : Str(layer));
  }
  names_.push_back(Str(layer + 1));
}

std::string CutNames::Range(int begin, int end, const char* to) const {
  const bool is_cut = IsInside(end);  // within the last layer
  const auto part = [&](int i) { return At(i) + (IsInside(i) ? "" : ".0"); };
  if (is_cut && end == begin + 1) return part(begin);
  const std::string& first = At(begin);
  const std::string last = is_cut ? part(end - 1) : Str(std::stoi(At(end)) - 1);
  return end == begin + 1 || first == last ? first : Str(first, to, last);
}

std::string CutNames::Text(const std::vector<int>& positions, const char* separator) const {
  std::vector<std::string> names;
  for (const int position : positions) names.push_back(At(position));
  return Join(names, separator);
}

Value CutNames::Numbers(const std::vector<int>& positions) const {
  Value::List numbers;
  for (const int position : positions) {
    const std::string& name = At(position);
    if (IsInside(position)) {
      numbers.emplace_back(std::stod(name));
    } else {
      numbers.emplace_back(std::stoi(name));
    }
  }
  return numbers;
}

std::optional<int> CutNames::Find(const Value& cut) const {
  if (!cut.is_number()) return std::nullopt;
  const double number = cut.as_double();
  const auto found = std::ranges::find_if(
      names_, [&](const std::string& name) { return std::abs(std::stod(name) - number) < 1e-9; });
  if (found == names_.end()) return std::nullopt;
  return static_cast<int>(found - names_.begin());
}

std::vector<int> CutNames::Positions(const Value& cuts, const char* subject) const {
  std::vector<int> positions;
  for (const Value& cut : cuts.as_list()) {
    const std::optional<int> position = Find(cut);
    if (!position) throw ConfigError(Str(subject, ": ", WhyMissing(cut)));
    positions.push_back(*position);
  }
  return positions;
}

std::string CutNames::WhyMissing(const Value& cut) const {
  if (!cut.is_number()) return Str("expected cuts such as 4 or 4.1, got ", cut.Describe());
  const std::string no_place = Str("there is no place ", cut.ToLua(), " to cut");
  const double number = cut.as_double();
  if (!(number >= 0 && number <= layers())) {
    return Str(no_place, "; the list has ", Plural(layers(), "layer"));
  }
  const auto layer = Str(static_cast<int>(number));
  std::vector<std::string> own, inside;
  for (const std::string& name : names_) {
    if (name.find('.') == name.npos) continue;
    inside.push_back(name);
    if (name.starts_with(layer + ".")) own.push_back(name);
  }
  if (!own.empty()) return Str(no_place, "; layer ", layer, " can be cut at ", Join(own, ", "));
  constexpr size_t kShown = 12;
  const char* more = inside.size() > kShown ? ", ..." : "";
  inside.resize(std::min(inside.size(), kShown));
  return Str(no_place, "; layer ", layer, " cannot be cut inside",
             inside.empty() ? ", nor can another of this job"
                            : Str("; others can, at ", Join(inside, ", "), more));
}

}  // namespace strata
