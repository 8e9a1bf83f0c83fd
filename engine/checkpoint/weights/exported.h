// Exported: the tensors of a published model, made of a save's: a map's rules backwards.
#pragma once

#include <string_view>
#include <vector>

#include "engine/checkpoint/weights/mapped_weights.h"

namespace strata {

/// All that the published model has, for MappedWeights::Read(); moments are left out. Throws
/// ConfigError that lists the tensors that the map has no place for, that cannot be cut evenly, or
/// are parts of one that is not whole; and for those that should be tied and differ.
std::vector<MappedTensor> Exported(const MappedWeights& weights);

/// What names of averages end with, in the saves of a training with `ema`.
inline constexpr std::string_view kAverage = "#ema";

/// The average of a tensor of `source` whose values were mapped so; false where a piece has none,
/// and nothing is changed.
bool MapAverage(const Checkpoint& source, MappedTensor& mapped);

}  // namespace strata
