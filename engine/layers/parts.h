// Layers in parts, for cuts inside of layers. A layer type declares its parts as types of its own,
// TYPE.PART, which are no layers for scripts: a TransformerEncoderLayer's are its attention and its
// feed-forward block. A container (Sequential, Residual) declares one, TYPE.part; its parts are
// TYPE.0, TYPE.1, ..., each with some of its layers. One behind the other parts compute what the
// whole computes, to the bit: with the same initial values, dropout's numbers and names of
// parameters.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"
#include "engine/layers/layer_types.h"

namespace strata {

/// The parts of all types, those of one type in their order.
const std::vector<LayerType>& PartTypes();
/// The name under which tables have a type: "Residual.part" for "Residual.3", else its own.
std::string TableName(std::string_view type);
/// Which part of its layer this type is, from 0 on; -1: a whole layer.
int PartNumber(std::string_view type);

/// Layers `begin` to `end` - 1 inside of a container.
struct ChildRange {
  int begin = 0;
  int end = 0;
  bool operator==(const ChildRange&) const = default;
};

/// How a container is divided, which its declaration alone decides: each of its layers is a part,
/// or an equal share of them where they are more than ten, for a cut such as 4.10 would be 4.1. The
/// first layer that may draw random numbers in training, and all behind it, are the last part: it
/// draws from the start of the numbers of its layer, as the whole does. Less than two: it stays
/// whole.
std::vector<ChildRange> PartRanges(const LayerSpec& container);
/// The layers inside that `spec` runs: of a part its own, of any other layer all.
ChildRange RangeOf(const LayerSpec& spec);
inline std::span<const LayerSpec> OwnChildren(const LayerSpec& spec) {
  const ChildRange own = RangeOf(spec);
  return std::span(spec.children).subspan(own.begin, own.end - own.begin);
}

/// The list with those layers in parts for which `wants` is true of their index, and which can be:
/// not tied ones, nor those with initial values or a type of their own. Layers without a name get
/// their index as one, so that their paths stay.
std::vector<LayerSpec> InParts(const std::vector<LayerSpec>& layers,
                               const std::function<bool(int)>& wants);
/// The list as the script has it, from InParts() or whole.
std::vector<LayerSpec> InWhole(const std::vector<LayerSpec>& layers);
bool HasParts(const std::vector<LayerSpec>& layers);

/// The index in the script's list of what stands at `position`; of the end: the number of layers.
int LayerNumber(const std::vector<LayerSpec>& layers, int position);
/// LayerPath(), for a part with its name behind it: "4.attention". Parameters of a part have the
/// path of the whole.
std::string PartPath(const LayerSpec& spec, int index);

/// How cuts are written: 4 is a cut before layer 4, 4.1 one before its part 1.
class CutNames {
 public:
  explicit CutNames(const std::vector<LayerSpec>& layers);
  /// Of what stands in the list, by type.
  explicit CutNames(const std::vector<std::string>& types);
  /// The same of layers in a plan.
  template <class Layer>
  static CutNames Of(const std::vector<Layer>& layers) {
    std::vector<std::string> types;
    for (const Layer& layer : layers) types.push_back(layer.type);
    return CutNames(types);
  }

  /// A cut before `position`, of 0 to the length of the list.
  const std::string& At(int position) const { return names_[static_cast<size_t>(position)]; }
  /// The layer of the script's list that stands there.
  std::string LayerAt(int position) const { return At(position).substr(0, At(position).find('.')); }
  bool IsInside(int position) const { return At(position).find('.') != std::string::npos; }
  /// What lies between two cuts: "3", "0 to 4.0", "4.1 to 8".
  std::string Range(int begin, int end, const char* to = " to ") const;
  /// Of the script's list.
  int layers() const { return std::stoi(names_.back()); }
  std::string Text(const std::vector<int>& positions, const char* separator = ",") const;
  /// As the key `partition` takes them.
  Value Numbers(const std::vector<int>& positions) const;
  /// The position of a cut, from its number; none where there is no such place in the list.
  std::optional<int> Find(const Value& cut) const;
  /// Those of a list of cuts. Throws ConfigError, which begins with `subject`, for one that has no
  /// place.
  std::vector<int> Positions(const Value& cuts, const char* subject) const;

 private:
  /// Why there is no such cut.
  std::string WhyMissing(const Value& cut) const;

  std::vector<std::string> names_;
};

}  // namespace strata
