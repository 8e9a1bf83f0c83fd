// Splits layers into parts, so that a cut between stages can lie inside a layer. A layer type
// declares its parts as further types TYPE.PART, which scripts cannot use: the parts of a
// TransformerEncoderLayer are its attention and its feed-forward block. A container (Sequential,
// Residual) declares one type TYPE.part; its parts are named TYPE.0, TYPE.1, ..., each with some of
// its layers. Run one after the other, the parts compute the same bits as the whole layer: they
// have the same initial values, the same random numbers in dropout, and the same parameter names.
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

/// The types of all parts. The parts of one layer type are adjacent and in the order in which they
/// run.
const std::vector<LayerType>& PartTypes();
/// The name under which the tables list a type: "Residual.part" for "Residual.3", else the type's
/// own name.
std::string TableName(std::string_view type);
/// The number of the part, from 0 on, that this type is of its layer; -1 if it is a whole layer.
int PartNumber(std::string_view type);

/// The layers `begin` to `end` - 1 inside a container.
struct ChildRange {
  int begin = 0;
  int end = 0;
  bool operator==(const ChildRange&) const = default;
};

/// The layers of each part of a container. Only the container's declaration decides: each of its
/// layers is a part, or an equal share of them if there are more than ten layers, because a cut
/// such as 4.10 would read as 4.1. The first layer that may draw random numbers in training, and
/// all layers after it, form the last part. So the last part begins at the start of the container's
/// random numbers, as the whole container does. A container with fewer than two ranges is not
/// divided.
std::vector<ChildRange> PartRanges(const LayerSpec& container);
/// The range of the children that `spec` runs: a part runs its own children, any other layer runs
/// all.
ChildRange RangeOf(const LayerSpec& spec);
inline std::span<const LayerSpec> OwnChildren(const LayerSpec& spec) {
  const ChildRange own = RangeOf(spec);
  return std::span(spec.children).subspan(own.begin, own.end - own.begin);
}

/// The list in which every layer is replaced by its parts if `wants(index)` is true and the layer
/// can be divided. Scripted and tied layers, layers with their own `init` or `dtype`, and layers
/// whose low-rank parts have dropout cannot.
/// Layers without a name are named by their index, so that their paths do not change.
std::vector<LayerSpec> InParts(const std::vector<LayerSpec>& layers,
                               const std::function<bool(int)>& wants);
/// The list as the script has it: undoes InParts().
std::vector<LayerSpec> InWhole(const std::vector<LayerSpec>& layers);
bool HasParts(const std::vector<LayerSpec>& layers);

/// Maps a position in a list with parts to the index of its layer in the script's list. The end
/// position maps to the number of layers.
int LayerNumber(const std::vector<LayerSpec>& layers, int position);
/// LayerPath(), followed by the part's name if it is a part: "4.attention". (The parameters of a
/// part have the path of the whole layer, LayerPath().)
std::string PartPath(const LayerSpec& spec, int index);

/// Converts positions in a list with parts to the notation of cuts and back: 4 is the cut before
/// layer 4, and 4.1 the cut before its part 1.
class CutNames {
 public:
  explicit CutNames(const std::vector<LayerSpec>& layers);
  /// From the types of the list's entries.
  explicit CutNames(const std::vector<std::string>& types);
  /// From layers in a plan, or anything with a member `type`.
  template <class Layer>
  static CutNames Of(const std::vector<Layer>& layers) {
    std::vector<std::string> types;
    for (const Layer& layer : layers) types.push_back(layer.type);
    return CutNames(types);
  }

  /// The name of the cut before `position`, which is from 0 to the length of the list.
  const std::string& At(int position) const { return names_[static_cast<size_t>(position)]; }
  /// The index, as text, of the script's layer at this position.
  std::string LayerAt(int position) const { return At(position).substr(0, At(position).find('.')); }
  bool IsInside(int position) const { return At(position).find('.') != std::string::npos; }
  /// The layers and parts between two cuts: "3", "0 to 4.0", "4.1 to 8".
  std::string Range(int begin, int end, const char* to = " to ") const;
  /// The number of layers in the script's list.
  int layers() const { return std::stoi(names_.back()); }
  std::string Text(const std::vector<int>& positions, const char* separator = ",") const;
  /// The cuts as a list of numbers, as the key `partition` takes them.
  Value Numbers(const std::vector<int>& positions) const;
  /// The position of the cut with this number; none if the list has no such cut.
  std::optional<int> Find(const Value& cut) const;
  /// The positions of a list of cuts. Throws ConfigError, whose text begins with `subject`, for a
  /// cut that the list does not have.
  std::vector<int> Positions(const Value& cuts, const char* subject) const;

 private:
  /// The error text for a cut that the list does not have; it names possible ones.
  std::string WhyMissing(const Value& cut) const;

  std::vector<std::string> names_;
};

}  // namespace strata
