// Pickle: reads the pickles in which torch.save() describes tensors, and nothing else. No code of
// the file runs. A pickle is a program that may call any function; this reader knows only the
// functions that build tensors, dicts, lists, tuples, numbers and texts, builds plain data from
// them, and refuses all others by name.
//
// LibTorch's own reader, torch::jit::Unpickler, cannot take its place (measured with 2.11): it
// makes None of an OrderedDict, so it refuses what torch.save(model.state_dict(), FILE) writes; it
// refuses protocols other than 2 and files from before PyTorch 1.6; and `strata inspect` has no
// LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// A value that a pickle built. Nodes refer to each other by index, so that no file can make C++
/// recurse.
struct PickleNode {
  enum class Kind {
    kNone,
    kBool,
    kInt,
    kFloat,
    kText,
    kList,
    kTuple,
    kDict,    ///< items: key, value, key, value ...
    kGlobal,  ///< text: the function or class, such as "torch.FloatStorage"
    /// text: its key in the archive; dtype; number: its elements.
    kStorage,
    /// items: {its storage}; dtype; number: offset in elements; shape; strides.
    kTensor,
  };
  Kind kind = Kind::kNone;
  int64_t number = 0;  ///< kInt, kBool
  double real = 0;     ///< kFloat
  std::string text = {};
  std::vector<int> items = {};
  /// safetensors' name of the dtype; "" = bytes without a dtype.
  std::string dtype = {};
  std::vector<int64_t> shape = {}, strides = {};
};

struct Pickle {
  std::vector<PickleNode> nodes;
  int root = 0;
  /// The length of the pickle; another one may follow it.
  size_t bytes = 0;
};

/// Runs the pickle at the beginning of `bytes`. Throws WorldError that begins with `source` and
/// says what is refused: a function by its name ("os.system"), an opcode, a pickle that is cut off,
/// or one that takes values that are not there.
Pickle ReadPickle(std::string_view bytes, const std::string& source);

}  // namespace strata
