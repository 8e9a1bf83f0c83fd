// Reads and writes files of the format safetensors, as Hugging Face's library does:
//
//   8 bytes: N, little-endian | N bytes: a JSON object, padded with spaces | the tensors' bytes
//
//   {"__metadata__": {"format": "pt"},
//    "3.weight": {"dtype": "F32", "shape": [64, 10], "data_offsets": [0, 2560]}, ...}
//
// The reader does not trust the file. It checks every length, offset, shape and name before it uses
// it, and allocates no more memory than the real size of the file justifies.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/fields/tensor_spec.h"
#include "engine/checkpoint/files/file.h"
#include "engine/checkpoint/files/tensor_file.h"

namespace strata {

/// The name of a dtype in the format, such as "F32".
const char* StoredName(DType dtype);
/// The dtype with this name in the format; none for dtypes that Strata does not have ("F8_E4M3").
std::optional<DType> FromStoredName(std::string_view name);

using StoredMetadata = std::vector<std::pair<std::string, std::string>>;

/// A safetensors file that is open for reading.
class SafetensorsFile : public TensorFile {
 public:
  /// Opens the file and reads its header. Throws WorldError that names the file and the tensor for:
  /// - a missing header, or one of more than 32 MiB;
  /// - invalid JSON, or a key that occurs twice;
  /// - an unknown dtype, or a name that TroubleWithTensorName() refuses;
  /// - offsets that do not fit the shape, overlap, leave holes, or do not end at the file's end.
  explicit SafetensorsFile(const std::string& path);

  const char* format() const override { return "safetensors"; }
  const std::string& path() const override { return file_.path(); }
  int64_t file_bytes() const override { return file_.size(); }
  const StoredMetadata& metadata() const { return metadata_; }
  /// The digest of all bytes before the tensors' bytes.
  const std::string& header_digest() const override { return header_digest_; }
  void Read(const StoredTensor& tensor, int64_t begin, void* to, int64_t bytes) const override;

 private:
  void ReadHeader();

  InputFile file_;
  StoredMetadata metadata_;
  std::string header_digest_;
  int64_t data_begin_ = 8;
};

/// A tensor to be written.
struct TensorDeclaration {
  std::string name;
  std::string dtype;  ///< the name in the format
  std::vector<int64_t> shape;
};

/// Writes a new file from its beginning to its end: construct it, call Write() for all bytes, then
/// Finish(). Errors: WorldError as OutputFile.
class SafetensorsWriter {
 public:
  /// Creates the file and writes the header. REQUIRES: the names are unique and valid
  /// (TroubleWithTensorName()), and the dtypes are known.
  SafetensorsWriter(const std::string& path, const std::vector<TensorDeclaration>& tensors,
                    const StoredMetadata& metadata);

  /// The tensors in the order in which their bytes must be written. Dtypes with larger items come
  /// first, so that each tensor is aligned for its dtype; otherwise the declared order is kept.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// Writes the next bytes, in pieces of any size.
  void Write(const void* bytes, int64_t count);
  /// Syncs the file to the disk. REQUIRES: all bytes were written.
  void Finish();

  const std::string& header_digest() const { return header_digest_; }
  int64_t file_bytes() const { return header_bytes_ + data_bytes_; }

 private:
  OutputFile file_;
  std::vector<StoredTensor> tensors_;
  std::string header_digest_;
  int64_t header_bytes_ = 0;
  int64_t data_bytes_ = 0;
  int64_t written_ = 0;
};

}  // namespace strata
