// The key `adapt`: trains low-rank parts (LoRA) beside weights of a network instead of the weights.
// Torch-free.
//
//   adapt = {"lora", rank=8, alpha=16, layers="q_proj|v_proj", dropout=0.05, train="norm"}
//
// Adapt() sets LayerSpec::low_rank of the layers that have the named weights, which may stand
// inside containers, attention, Transformer layers and layers of strata.layer, and marks all other
// parameters as frozen. Everything else (shapes, costs, memory, saves, cuts) follows from the
// specs.
//
// `layers` is a regular expression on the names of parameters: their names in saves, or those that
// weights.map gives them in the published model. Refused with both lists: an expression that
// chooses other weights by one kind of name than by the other. Also refused: one that matches
// nothing (with the nearest names) or a parameter that is no matrix of a linear operator and no
// bias, one that matches only some of the matrices that Strata holds as one, or only some copies in
// a stack; tied weights; and `freeze` beside `adapt`.
//
// `base` = "nf4" or "int8" holds the frozen weights of linear operators in few bits (LayerSpec::
// packed, engine/layers/packing.h), whether they have low-rank parts or not.
//
// It does not: adapt convolutions, embeddings or recurrent layers, or share adapted or packed
// layers over the model axis (split.h refuses that).
#pragma once

#include "engine/job/job.h"
#include "engine/job/job_keys.h"

namespace strata {

/// Reads `adapt` into job.adapt, and changes job.layers as described above. Does nothing if the job
/// does not have the key.
/// REQUIRES: job.layers and job.weights are set.
void Adapt(const JobKeys& keys, Job& job);

}  // namespace strata
