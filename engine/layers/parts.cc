// A list with parts differs from the script's list only in types: a divided layer stands there once
// for each of its parts, with the type TYPE.PART and otherwise the same spec. So everything here is
// derived from the types: the part's number, the range of a container's children, and the names of
// cuts.
#include "engine/layers/parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/layers/own_type.h"
#include "engine/layers/rules.h"

namespace strata {
namespace {

std::string_view WholeType(std::string_view type) { return type.substr(0, type.find('.')); }

/// True for a number. Names that scripts give to layers are never numbers, so such a name is an
/// index that InParts() set.
bool IsIndex(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789") == name.npos;
}

/// The ending of the type of a container's parts in the tables.
constexpr std::string_view kPart = ".part";

bool IsContainer(std::string_view type) {
  return std::ranges::any_of(PartTypes(), [&](const LayerType& part) {
    return part.name.ends_with(kPart) && WholeType(part.name) == type;
  });
}

/// The number of a part of a container ("Residual.3"); none for other types.
std::optional<int> NumberIn(std::string_view type) {
  const std::string_view whole = WholeType(type);
  if (type.size() != whole.size() + 2 || !IsIndex(type.substr(type.size() - 1)))
    return std::nullopt;
  return IsContainer(whole) ? std::optional(type.back() - '0') : std::nullopt;
}

bool IsPart(const LayerSpec& spec) { return !spec.scripted && PartNumber(spec.type) >= 0; }
bool IsContinued(const LayerSpec& spec) { return !spec.scripted && PartNumber(spec.type) > 0; }

/// True if a part of a container may end with this child, so that the children after it form
/// another part. It must not be scripted, tied or draw random numbers. In a Residual it must also
/// give a single tensor, because the parts tell the Residual's input from the body's tensor by
/// position.
bool MayEndPart(const LayerSpec& child, bool of_residual) {
  if (child.scripted || !child.tied_key.empty() || MayDraw(child)) return false;
  const LayerType* type = FindLayerType(child.type);
  if (of_residual && type->gives_states) return false;
  return std::ranges::all_of(
      child.children, [&](const LayerSpec& inside) { return MayEndPart(inside, of_residual); });
}

/// The types of the layer's parts; empty if it cannot be divided. A later part skips the random
/// numbers that an earlier one draws, but not those of dropout before low-rank parts.
std::vector<std::string> PartsOf(const LayerSpec& spec) {
  const bool is_bound = spec.has_scripted_forward() || spec.init.id >= 0 || OwnType(spec) ||
                        !spec.tied_key.empty() || IsPart(spec) || spec.low_rank.dropout > 0;
  std::vector<std::string> parts;
  if (is_bound) return parts;
  for (const LayerType& type : PartTypes()) {
    if (WholeType(type.name) == spec.type) parts.push_back(type.name);
  }
  if (!IsContainer(spec.type)) return parts;
  const size_t count = PartRanges(spec).size();
  parts.clear();
  for (size_t i = 0; count > 1 && i < count; ++i) parts.push_back(Str(spec.type, ".", i));
  return parts;
}

std::vector<std::string> TypesOf(const std::vector<LayerSpec>& layers) {
  std::vector<std::string> types;
  for (const LayerSpec& layer : layers) types.push_back(layer.scripted ? "" : layer.type);
  return types;
}

}  // namespace

const std::vector<LayerType>& PartTypes() {
  static const std::vector<LayerType> types = [] {
    std::vector<LayerType> all = layers::TransformerParts();
    for (LayerType& type : layers::ContainerParts()) all.push_back(std::move(type));
    return all;
  }();
  return types;
}

std::string TableName(std::string_view type) {
  return NumberIn(type) ? Str(WholeType(type), kPart) : std::string(type);
}

int PartNumber(std::string_view type) {
  if (type.find('.') == type.npos) return -1;
  if (const std::optional<int> inside = NumberIn(type)) return *inside;
  int number = 0;
  for (const LayerType& part : PartTypes()) {
    if (part.name == type) return number;
    if (WholeType(part.name) == WholeType(type)) ++number;
  }
  return -1;
}

std::vector<ChildRange> PartRanges(const LayerSpec& container) {
  constexpr int kMost = 10;
  const bool of_residual = WholeType(container.type) == "Residual";
  const auto size = static_cast<int>(container.children.size());
  const auto last = std::ranges::find_if_not(
      container.children, [&](const LayerSpec& child) { return MayEndPart(child, of_residual); });
  const auto alone = static_cast<int>(last - container.children.begin());
  const int pieces = alone + (alone < size ? 1 : 0), count = std::min(pieces, kMost);
  std::vector<ChildRange> ranges;
  for (int i = 0; i < count; ++i) ranges.push_back({i * pieces / count, (i + 1) * pieces / count});
  if (!ranges.empty()) ranges.back().end = size;
  return ranges;
}

ChildRange RangeOf(const LayerSpec& spec) {
  const std::optional<int> number = spec.scripted ? std::nullopt : NumberIn(spec.type);
  if (!number) return {0, static_cast<int>(spec.children.size())};
  return PartRanges(spec).at(static_cast<size_t>(*number));
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
