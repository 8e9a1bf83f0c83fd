// The inputs of layers that take several, some of which may be left out. Their names are for calls
// such as layer(x, {src_key_padding_mask=mask}) in a layer of one's own.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace strata {

/// PyTorch's names, in the order in which Layer::Forward() takes the tensors, where one that is
/// left out before another is undefined. Empty for a type whose inputs have no names. Masks come
/// behind the sequences, so that a list's second tensor is the first mask: {x,
/// src_key_padding_mask}.
std::span<const std::string_view> InputNames(std::string_view type);

/// The inputs at these places, without those behind the last one given.
template <class T>
std::vector<T> InputsAt(const std::vector<T>& inputs, std::initializer_list<size_t> places) {
  std::vector<T> taken;
  for (const size_t place : places) {
    if (place < inputs.size()) taken.push_back(inputs[place]);
  }
  return taken;
}

/// What a Transformer's encoder takes of its inputs: the source and its masks.
template <class T>
std::vector<T> EncoderInputs(const std::vector<T>& inputs) {
  return InputsAt(inputs, {0, 2, 5});
}

/// What its decoder takes: the target, the encoder's output (`memory`), and the masks of both.
/// REQUIRES: a target.
template <class T>
std::vector<T> DecoderInputs(const std::vector<T>& inputs, const T& memory) {
  std::vector<T> taken = InputsAt(inputs, {1, 3, 4, 6, 7});
  taken.insert(taken.begin() + 1, memory);
  return taken;
}

}  // namespace strata
