#include "lua/tensors/tensor_files.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/tensors/dtype.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/comm/specs.h"
#include "engine/data/files/array_file.h"
#include "lua/core/binding.h"
#include "lua/core/convert.h"
#include "lua/core/file_access.h"
#include "lua/library/library.h"
#include "lua/tensors/tensors.h"

namespace strata::lua {
namespace {

constexpr size_t kAligned = 64;  // in bytes; at less, operators may choose other kernels

/// Makes a tensor over the memory-mapped file, whose pages are copied when they are first written
/// to. If the array is not aligned as tensors are, the tensor is a copy.
at::Tensor TensorOf(const data::Array& array) {
  const at::ScalarType type = ToScalarType(array.spec.dtype);
  const auto address = reinterpret_cast<uintptr_t>(array.bytes);
  if (array.spec.elements() == 0 || address % kAligned != 0) {
    at::Tensor tensor = at::empty(array.spec.shape, type);
    if (tensor.nbytes() > 0) std::memcpy(tensor.mutable_data_ptr(), array.bytes, tensor.nbytes());
    return tensor;
  }
  return at::from_blob(
      const_cast<std::byte*>(array.bytes), array.spec.shape, [owner = array.owner](void*) {},
      at::TensorOptions().dtype(type));
}

/// Reads a file named by the script. If it cannot be read, that is an error of the script.
std::vector<data::Array> ReadNamed(const std::string& file) {
  try {
    return data::ReadArrays(file);
  } catch (const WorldError& error) {
    throw ConfigError(error.what());
  }
}

/// strata.tensors.load(path) returns a tensor, or a table of tensors by name.
int Load(lua_State* L) {
  const std::string path = TextArgument(L, 1, "a file's path");
  const std::string file = ReadablePath(L, CallingFolder(L), path, "strata.tensors.load");
  const std::vector<data::Array> arrays = ReadNamed(file);
  if (arrays.size() == 1 && arrays[0].name.empty()) {
    PushTensor(L, TensorOf(arrays[0]));
    return 1;
  }
  lua_createtable(L, 0, static_cast<int>(arrays.size()));
  for (const data::Array& array : arrays) {
    PushText(L, array.name);
    PushTensor(L, TensorOf(array));
    lua_rawset(L, -3);
  }
  return 1;
}

data::Array ArrayOf(std::string name, const at::Tensor& tensor) {
  const auto flat = std::make_shared<const at::Tensor>(tensor.detach().to(at::kCPU).contiguous());
  return {std::move(name), SpecOf(*flat), static_cast<const std::byte*>(flat->const_data_ptr()),
          flat};
}

std::vector<data::Array> ArraysAt(lua_State* L, int index) {
  if (const at::Tensor* tensor = TensorAt(L, index)) return {ArrayOf("", *tensor)};
  if (!IsPlainTable(L, index)) ThrowExpected(L, index, "a tensor, or a table of tensors by name");
  std::vector<data::Array> arrays;
  const TableShape shape = ShapeOf(L, index);
  if (shape.positions > 0 || shape.names.empty()) {
    ThrowExpected(L, index, "a tensor, or a table of tensors by name");
  }
  for (const std::string& name : shape.names) {
    if (const std::string trouble = TroubleWithTensorName(name); !trouble.empty()) {
      throw ConfigError(Str("strata.tensors.save: \"", name, "\" ", trouble));
    }
    PushText(L, name);
    lua_rawget(L, index);
    arrays.push_back(ArrayOf(name, TensorArgument(L, -1, Str(name, " as a tensor"))));
    lua_pop(L, 1);
  }
  return arrays;
}

bool HoldsTensors(const std::string& path) {
  try {
    data::ReadArrays(path);
    return true;
  } catch (const WorldError&) {
    return false;
  }
}

/// strata.tensors.save(path, tensor | {name=tensor}) writes a file.
int Save(lua_State* L) {
  const std::string path = TextArgument(L, 1, "a file's path");
  const std::vector<data::Array> arrays = ArraysAt(L, 2);
  const bool is_one = arrays.size() == 1 && arrays[0].name.empty();
  const std::string file =
      WritablePath(L, path, {is_one ? ".npy" : ".safetensors"}, "strata.tensors.save");
  CheckReplaceable(file, "file of tensors", HoldsTensors);
  data::WriteArrays(file, arrays);
  return 0;
}

}  // namespace

void OpenTensorFiles(lua_State* L) {
  lua_getfield(L, -1, "tensors");
  const NamedFunction functions[] = {
      {"load", Bound<Load, 1>,
       "strata.tensors.load(path): the tensor of a .npy file, or a table of tensors of a .npz or "
       ".safetensors file\nThe file is mapped: opening a large one costs nothing. Where a script "
       "may read: see --allow_read."},
      {"save", Bound<Save, 2>,
       "strata.tensors.save(path, x): a tensor as .npy, or a table of tensors by name as "
       ".safetensors\nA script writes below its own folder."}};
  SetFunctions(L, functions);
  RefuseUnknownNames(L, "strata.tensors.");
  lua_pop(L, 1);
}

}  // namespace strata::lua
