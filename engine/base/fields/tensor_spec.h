// TensorSpec: the shape and dtype of a tensor, without torch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace strata {

/// Element types, named as PyTorch names them.
enum class DType {
  kFloat32,
  kFloat64,
  kFloat16,
  kBFloat16,
  kInt64,
  kInt32,
  kInt16,
  kInt8,
  kUInt8,
  kBool,
};

/// "float32": the text form in scripts, plans and checkpoints.
const char* DTypeName(DType dtype);
/// The dtype with this name: PyTorch's names and their short forms ("float", "double", "half",
/// "long", "int") are valid. Throws ConfigError with the nearest name for other texts.
DType ParseDType(std::string_view name);
/// Bytes per element.
int64_t DTypeSize(DType dtype);
/// True for floating-point types, which can have gradients.
bool IsFloating(DType dtype);

/// The largest size of a dim that field tables accept.
inline constexpr int64_t kLargestSize = 2147483647;

/// The product of the sizes; 1 for an empty list. If the product overflows, the result is the
/// largest int64.
int64_t Product(std::span<const int64_t> sizes);

/// The shape and dtype of a tensor. Dim 0 is the batch, unless a comment says otherwise.
struct TensorSpec {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;

  int64_t elements() const { return Product(shape); }
  int64_t bytes() const { return Product({{elements(), DTypeSize(dtype)}}); }
  /// "float32 (8, 3, 224, 224)".
  std::string ToString() const;
  bool operator==(const TensorSpec&) const = default;
};

/// The tensors that one layer passes to the next: one, or several if connections cross that place.
using TensorSpecs = std::vector<TensorSpec>;

/// "float32 (8, 128)"; several specs are joined by the separator.
std::string ToString(const TensorSpecs& specs, const char* separator = " and ",
                     const char* none = "no tensor");

/// The sum of the bytes of all specs.
int64_t BytesOf(const TensorSpecs& specs);
/// Prepends a dim of `rows` to the shape of each spec: the specs of one sample become those of a
/// batch of `rows` samples.
TensorSpecs WithRows(TensorSpecs sample, int64_t rows);

}  // namespace strata
