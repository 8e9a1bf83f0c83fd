// TensorFile: a file of named tensors, of any supported format, that is open for reading.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// The description of one tensor in a file.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< safetensors' name of the dtype: "F32"
  std::vector<int64_t> shape;
  /// Position of its first byte, counted from the beginning of the data in the format.
  int64_t offset = 0;
  int64_t bytes = 0;
  bool operator==(const StoredTensor&) const = default;
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  /// Opens a safetensors file, or what torch.save() wrote; the first bytes decide. Throws
  /// WorldError as SafetensorsFile and TorchFile do.
  static std::unique_ptr<TensorFile> Open(const std::string& path);

  /// The name of the format: "safetensors" or "PyTorch".
  virtual const char* format() const = 0;
  virtual const std::string& path() const = 0;
  virtual int64_t file_bytes() const = 0;
  /// The digest of the description of the tensors, not of their bytes.
  virtual const std::string& header_digest() const = 0;
  /// Reads `bytes` bytes of the tensor from its byte `begin` on, as if it were stored row-major and
  /// without gaps. May be called from any thread. REQUIRES: they lie within the tensor. Throws
  /// WorldError if the disk fails or the file has become shorter.
  virtual void Read(const StoredTensor& tensor, int64_t begin, void* to, int64_t bytes) const = 0;

  /// All tensors, in the order of their bytes or of the description.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// The tensor with this name; null if there is none.
  const StoredTensor* Find(std::string_view name) const;

 protected:
  std::vector<StoredTensor> tensors_;
};

}  // namespace strata
