// Applies the rules of a map backwards. A rule says that our tensor is made from ranges of
// published tensors; so each of our tensors contributes pieces to the published tensors, which are
// collected by name and checked for completeness at the end. Tied tensors must be equal to the
// tensor they are tied to, and are not written.
#include "engine/checkpoint/weights/exported.h"

#include <algorithm>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/checkpoint/weights/convert_elements.h"

namespace strata {
namespace {

class Exporter {
 public:
  explicit Exporter(const MappedWeights& weights) : weights_(weights) {}

  void Add(const std::string& name, const SavedTensor& ours) {
    const auto found = weights_.map().Find(name);
    if (!found) {
      return trouble_.push_back(Str(QuotedName(name), ", for which the map has no rule"));
    }
    const MapRule& rule = found->rule;
    const auto theirs = static_cast<int>(found->theirs.size());
    for (int i = 0; i < theirs; ++i) {
      MappedTensor& tensor = Place(found->theirs[static_cast<size_t>(i)].front(), rule, ours);
      const auto piece = PartOf(ours, tensor, i, theirs);
      if (piece && tensor.pieces.size() == static_cast<size_t>(rule.parts)) {
        tensor.pieces[static_cast<size_t>(rule.part)] = *piece;
        continue;
      }
      trouble_.push_back(Str(QuotedName(name), " (", ours.spec.ToString(),
                             "), which cannot be cut into ", theirs, " along dim ", rule.dim));
    }
  }

  std::vector<MappedTensor> Finish() {
    for (std::vector<MappedTensor>* tensors : {&all_, &tied_}) {
      for (MappedTensor& tensor : *tensors) {
        const bool is_whole =
            std::ranges::all_of(tensor.pieces, [](const auto& piece) { return piece.source; });
        const std::string why =
            is_whole ? TroubleWithPieces(tensor, tensor.spec.shape) : "parts of it are not there";
        if (!why.empty()) trouble_.push_back(Str(QuotedName(tensor.name), ": ", why));
      }
    }
    if (!trouble_.empty()) {
      throw ConfigError(Str(weights_.source().path(),
                            " does not fit the map: ", Listed("no place for", trouble_)));
    }
    for (const MappedTensor& tensor : tied_) CheckTied(tensor);
    return std::move(all_);
  }

 private:
  /// The published tensor with this name, to which pieces are still added. A tied one is kept
  /// separately.
  MappedTensor& Place(const std::string& name, const MapRule& rule, const SavedTensor& ours) {
    std::vector<MappedTensor>& tensors = rule.tied ? tied_ : all_;
    const auto known = places_.find(name);
    if (!rule.tied && known != places_.end()) return all_[known->second];
    if (!rule.tied) places_[name] = all_.size();
    // Pieces are cut in the published layout, so along the other dim if that is transposed.
    const int dim = rule.transpose ? 1 - rule.dim : rule.dim;
    MappedTensor& tensor =
        tensors.emplace_back(MappedTensor{name, {{}, ours.spec.dtype}, {}, dim, rule.transpose});
    tensor.pieces.resize(static_cast<size_t>(rule.parts));
    return tensor;
  }

  void CheckTied(const MappedTensor& tensor) const {
    const auto place = places_.find(tensor.name);
    const bool is_there = place != places_.end();
    if (is_there && Bytes(all_[place->second]) == Bytes(tensor)) return;
    throw ConfigError(Str(QuotedName(tensor.pieces[0].source->name), " is not what ",
                          QuotedName(tensor.name),
                          " holds, but in the published model they are one"));
  }

  std::vector<char> Bytes(const MappedTensor& tensor) const {
    std::vector<char> bytes(static_cast<size_t>(tensor.spec.bytes()));
    weights_.Read(tensor, Slice::Whole(tensor.spec.shape), bytes.data());
    return bytes;
  }

  const MappedWeights& weights_;
  std::vector<MappedTensor> all_, tied_;
  std::map<std::string, size_t> places_;  // index in all_ by name
  std::vector<std::string> trouble_;
};

}  // namespace

std::vector<MappedTensor> Exported(const MappedWeights& weights) {
  if (weights.map().is_function()) {
    throw ConfigError("a map that is a function goes one way: to export, give a table of rules");
  }
  for (const ForeignTensor& tensor : weights.source().manifest().foreign) {
    throw ConfigError(Str(weights.source().path(), ": ", TroubleWith(tensor)));
  }
  Exporter exporter(weights);
  for (const SavedTensor& ours : weights.source().manifest().tensors) {
    const auto found = weights.tensors().find(ours.name);
    if (found != weights.tensors().end()) exporter.Add(found->first, ours);
  }
  return exporter.Finish();
}

bool HasAverages(const Checkpoint& save) {
  return std::ranges::any_of(save.manifest().tensors, [](const SavedTensor& tensor) {
    return tensor.kind == TensorKind::kMoment && tensor.name.ends_with(kAverage);
  });
}

const SavedTensor* AverageOf(const Checkpoint& save, const SavedTensor& tensor) {
  const SavedTensor* const average = save.manifest().Find(Str(tensor.name, kAverage));
  return average && average->spec.shape == tensor.spec.shape ? average : nullptr;
}

bool MapAverage(const Checkpoint& source, MappedTensor& mapped) {
  MappedTensor averages = mapped;
  const SavedTensor*& first = averages.pieces[0].source;
  for (MappedTensor::Piece& piece : averages.pieces) {
    const SavedTensor* const average = AverageOf(source, *piece.source);
    if (!average) return false;
    piece.source = average;
    // The pieces must have one dtype; averages of 16-bit values may be in float32.
    if (average->spec.dtype != first->spec.dtype) return false;
  }
  if (!CanConvert(first->spec.dtype, mapped.spec.dtype)) return false;
  mapped = std::move(averages);
  return true;
}

}  // namespace strata
