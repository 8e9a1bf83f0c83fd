// The names of the inputs of layers that take several, some of which may be left out: for calls
// such as layer(x, {src_key_padding_mask=mask}) in a layer of one's own.
#pragma once

#include <span>
#include <string_view>

namespace strata {

/// PyTorch's names, in the order in which Layer::Forward() takes the tensors, where one that is
/// left out before another is undefined. Empty for a type whose inputs have no names. Masks come
/// behind the sequences, so that a list's second tensor is the first mask: {x,
/// src_key_padding_mask}.
std::span<const std::string_view> InputNames(std::string_view type);

}  // namespace strata
