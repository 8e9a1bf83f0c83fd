// Which layers add up in no order on a GPU.
#pragma once

#include <string>
#include <vector>

#include "engine/spec/layers/layer_spec.h"

namespace strata {

/// Of a job's layers those whose gradient LibTorch 2.11 adds up on a GPU in the order in which
/// blocks happen to end, so that two runs differ in the last bits: "layer 3 Upsample"; "" = none.
/// Each was seen to differ within twelve passes on an H100, and no other of nn was. What a script
/// computes is not looked at.
std::string AddedInAnyOrder(const std::vector<LayerSpec>& layers);

}  // namespace strata
