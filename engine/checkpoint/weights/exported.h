// Exported: makes the tensors of a published model from those of a save, by the rules of a map
// applied backwards.
#pragma once

#include <string_view>
#include <vector>

#include "engine/checkpoint/weights/mapped_weights.h"

namespace strata {

/// All tensors of the published model, for MappedWeights::Read(); moments are left out. Throws
/// ConfigError that lists the tensors for which the map has no rule, that cannot be cut evenly, or
/// that are parts of a tensor which is not complete; and for tensors that should be tied but
/// differ.
std::vector<MappedTensor> Exported(const MappedWeights& weights);

/// The end of the names of moving averages, in saves of a training with `ema`.
inline constexpr std::string_view kAverage = "#ema";

/// True if the save has averages of parameters.
bool HasAverages(const Checkpoint& save);

/// The moving average of a tensor of the save; null if there is none of its shape.
const SavedTensor* AverageOf(const Checkpoint& save, const SavedTensor& tensor);

/// Replaces the pieces of a mapped tensor by their moving averages. Returns false, and changes
/// nothing, if a piece has no average.
bool MapAverage(const Checkpoint& source, MappedTensor& mapped);

}  // namespace strata
