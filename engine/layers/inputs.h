// The names and the order of the inputs of layers that take several, some of them optional. A
// user's own layer passes them by name: layer(x, {src_key_padding_mask=mask}).
#pragma once

#include <cstddef>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

namespace strata {

/// PyTorch's names of the inputs, in the order in which Layer::Forward() takes them. An input that
/// is left out before a given one is an undefined tensor. Empty for a type whose inputs have no
/// names. The masks follow the sequences. So for a layer of one sequence the second tensor is its
/// first mask: {x, src_key_padding_mask}.
std::span<const std::string_view> InputNames(std::string_view type);

/// The inputs at these indices. Indices beyond the end of `inputs` are left out.
template <class T>
std::vector<T> InputsAt(const std::vector<T>& inputs, std::initializer_list<size_t> places) {
  std::vector<T> taken;
  for (const size_t place : places) {
    if (place < inputs.size()) taken.push_back(inputs[place]);
  }
  return taken;
}

/// Those inputs of a Transformer that its encoder takes: the source and its masks.
template <class T>
std::vector<T> EncoderInputs(const std::vector<T>& inputs) {
  return InputsAt(inputs, {0, 2, 5});
}

/// The inputs of a Transformer's decoder: the target, the encoder's output (`memory`), and the
/// masks of both. REQUIRES: `inputs` has a target.
template <class T>
std::vector<T> DecoderInputs(const std::vector<T>& inputs, const T& memory) {
  std::vector<T> taken = InputsAt(inputs, {1, 3, 4, 6, 7});
  taken.insert(taken.begin() + 1, memory);
  return taken;
}

}  // namespace strata
