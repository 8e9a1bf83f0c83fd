// Files of the format safetensors, as Hugging Face's library reads and writes them:
//
//   8 bytes: N, little-endian | N bytes: a JSON object, padded with spaces | the tensors' bytes
//
//   {"__metadata__": {"format": "pt"},
//    "3.weight": {"dtype": "F32", "shape": [64, 10], "data_offsets": [0, 2560]}, ...}
//
// Files that are read are hostile until proven otherwise: every length, offset, shape and name is
// checked before anything is believed, and nothing is allocated because a file says so.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/checkpoint/file.h"
#include "engine/spec/tensor_spec.h"

namespace strata {

/// The format's name of a dtype: "F32".
const char* StoredName(DType dtype);
/// The dtype of that name; none for those that only the format has ("F8_E4M3", "U16").
std::optional<DType> FromStoredName(std::string_view name);

/// What the header says of a tensor.
struct StoredTensor {
  std::string name;
  std::string dtype;  ///< the format's name
  std::vector<int64_t> shape;
  int64_t offset = 0;  ///< of its first byte, behind the header
  int64_t bytes = 0;
  bool operator==(const StoredTensor&) const = default;
};

using StoredMetadata = std::vector<std::pair<std::string, std::string>>;

/// A file that is read.
class SafetensorsFile {
 public:
  /// Reads the header. Throws WorldError, which names the file and the tensor: no or a too long
  /// header (32 MiB), JSON that is wrong or has a key twice, unknown dtypes, offsets that are not
  /// shape times item size, that overlap, leave holes or do not end where the file does, names that
  /// TroubleWithTensorName() refuses.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  int64_t file_bytes() const { return file_.size(); }
  /// In the order of their bytes.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredMetadata& metadata() const { return metadata_; }
  const StoredTensor* Find(std::string_view name) const;
  /// Of everything before the tensors' bytes.
  const std::string& header_digest() const { return header_digest_; }

  /// From any thread. REQUIRES: within the tensor's bytes. Throws WorldError.
  void Read(const StoredTensor& tensor, int64_t begin, void* to, int64_t bytes) const;

 private:
  void ReadHeader();

  InputFile file_;
  std::vector<StoredTensor> tensors_;
  StoredMetadata metadata_;
  std::string header_digest_;
  int64_t data_begin_ = 8;
};

/// A tensor that shall be written.
struct TensorDeclaration {
  std::string name;
  std::string dtype;  ///< the format's name
  std::vector<int64_t> shape;
};

/// A new file, written from its beginning to its end.
///   SafetensorsWriter(...) Write* Finish
/// Errors: WorldError when the disk does not take it.
class SafetensorsWriter {
 public:
  /// Writes the header. REQUIRES: names that are unique and fit; known dtypes.
  SafetensorsWriter(const std::string& path, const std::vector<TensorDeclaration>& tensors,
                    const StoredMetadata& metadata);

  /// In the order in which their bytes are to be written: larger items first, so that each tensor
  /// is aligned for its dtype; else as declared.
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  /// The next bytes, in pieces of any size.
  void Write(const void* bytes, int64_t count);
  /// The file is on the disk on return. REQUIRES: all bytes were written.
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
