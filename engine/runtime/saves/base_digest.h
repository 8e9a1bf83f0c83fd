// DigestOfBase(): the digest of the weights that a job with `adapt` leaves as they are. Its saves
// hold the low-rank parts only, so the training that resumes must have the same base again.
#pragma once

#include <string>
#include <vector>

#include "engine/comm/transport.h"
#include "engine/runtime/saves/training_state.h"

namespace strata {

/// Collective. A sum over all elements of hashes of name, place and value. It depends neither on
/// how ranks divide the tensors nor on their dtype, as long as values are equal. `state`: tensors
/// of the base, of which each element is on one rank only.
std::string DigestOfBase(const std::vector<StateTensor>& state, Transport& transport);

}  // namespace strata
