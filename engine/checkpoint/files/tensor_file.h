// TensorFile: a file of named tensors that is open for reading, of whatever format.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// What a file's description says about one tensor.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< safetensors' name of it: "F32"
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< of its first byte, counted from where the format's data begin
  int64_t bytes = 0;
  bool operator==(const StoredTensor&) const = default;
};

class TensorFile {
 public:
  virtual ~TensorFile() = default;
  /// Opens a safetensors file, or what torch.save() wrote; the first bytes tell. Throws WorldError
  /// as SafetensorsFile and TorchFile do.
  static std::unique_ptr<TensorFile> Open(const std::string& path);

  /// "safetensors", "PyTorch".
  virtual const char* format() const = 0;
  virtual const std::string& path() const = 0;
  virtual int64_t file_bytes() const = 0;
  /// The digest of what describes the tensors: not of their bytes.
  virtual const std::string& header_digest() const = 0;
  /// Reads `bytes` bytes of the tensor, from its byte `begin` on, as if it lay row-major and
  /// without gaps. From any thread. REQUIRES: they lie within the tensor. Throws WorldError when
  /// the disk fails or the file has become shorter.
  virtual void Read(const StoredTensor& tensor, int64_t begin, void* to, int64_t bytes) const = 0;

  /// All tensors, in the order of their bytes or of the description.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// The tensor of this name; null when there is none.
  const StoredTensor* Find(std::string_view name) const;

 protected:
  std::vector<StoredTensor> tensors_;
};

}  // namespace strata
