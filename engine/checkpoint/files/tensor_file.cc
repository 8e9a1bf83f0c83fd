// Chooses the reader of a file by its first bytes.
#include "engine/checkpoint/files/tensor_file.h"

#include <algorithm>

#include "engine/checkpoint/files/safetensors.h"
#include "engine/checkpoint/files/torch_file.h"

namespace strata {

std::unique_ptr<TensorFile> TensorFile::Open(const std::string& path) {
  if (TorchFile::Recognizes(path)) return std::make_unique<TorchFile>(path);
  return std::make_unique<SafetensorsFile>(path);
}

const StoredTensor* TensorFile::Find(std::string_view name) const {
  const auto found = std::ranges::find(tensors_, name, &StoredTensor::name);
  return found == tensors_.end() ? nullptr : &*found;
}

}  // namespace strata
