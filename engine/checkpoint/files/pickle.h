// Pickle: reads the pickles in which torch.save() describes tensors, and nothing else. No code of
// the file runs: a pickle is a program that may call any function, here only those that build
// tensors, dicts, lists, tuples, numbers and texts are known, as plain data; all others are refused
// by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// What a pickle built. Nodes name each other by their index, so that no file makes C++ recurse.
struct PickleNode {
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kList,
    kTuple,
    kDict,     ///< items: key, value, key, value ...
    kGlobal,   ///< text: "torch.FloatStorage"
    kStorage,  ///< text: its key in the archive; dtype; number: elements
    kTensor,   ///< items: {its storage}; dtype, number: offset in elements, shape, strides
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;  ///< kInt, kBool
  double real = 0;     ///< kFloat
  std::string text = {};
  std::vector<int> items = {};
  std::string dtype = {};  ///< safetensors' name of it; "" = bytes without a dtype
  std::vector<int64_t> shape = {}, strides = {};
};

struct Pickle {
  std::vector<PickleNode> nodes;
  int root = 0;
  size_t bytes = 0;  ///< how long the pickle is: another may follow
};

/// Runs the pickle at the beginning of `bytes`. Throws WorldError that begins with `source`, and
/// says what is refused: a function's name ("os.system"), an opcode, a pickle that is cut off or
/// that takes what is not there.
Pickle ReadPickle(std::string_view bytes, const std::string& source);

}  // namespace strata
