// What is known of a tensor before it exists: its shape and dtype.
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

/// "float32". The text form in scripts, plans and checkpoints.
const char* DTypeName(DType dtype);
/// Takes PyTorch's names and their short forms ("float", "double", "half", "long", "int"). Throws
/// ConfigError with the nearest name.
DType ParseDType(std::string_view name);
/// Bytes of one element.
int64_t DTypeSize(DType dtype);
/// Floating types carry gradients.
bool IsFloating(DType dtype);

/// The largest size of a dim, and the largest integer that declarations take as one.
inline constexpr int64_t kLargestSize = 2147483647;

/// The product of the sizes, 1 for none; the largest int64 where it does not fit.
int64_t Product(std::span<const int64_t> sizes);

/// Shape (dim 0 is the batch unless said otherwise) and dtype.
struct TensorSpec {
  std::vector<int64_t> shape;
  DType dtype = DType::kFloat32;

  int64_t elements() const { return Product(shape); }
  int64_t bytes() const { return Product({{elements(), DTypeSize(dtype)}}); }
  /// "float32 (8, 3, 224, 224)".
  std::string ToString() const;
  bool operator==(const TensorSpec&) const = default;
};

/// What crosses a boundary between two layers: one tensor, later several.
using TensorSpecs = std::vector<TensorSpec>;

}  // namespace strata
