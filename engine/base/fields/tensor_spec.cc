#include "engine/base/fields/tensor_spec.h"

#include <array>
#include <limits>

#include "engine/base/check.h"
#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

struct DTypeInfo {
  DType dtype;
  const char* name;
  const char* alias;  // PyTorch's short name, or null
  int64_t size;
  bool floating;
};

// All dtypes, in the order of the enum.
constexpr std::array<DTypeInfo, 10> kDTypes = {{
    {DType::kFloat32, "float32", "float", 4, true},
    {DType::kFloat64, "float64", "double", 8, true},
    {DType::kFloat16, "float16", "half", 2, true},
    {DType::kBFloat16, "bfloat16", nullptr, 2, true},
    {DType::kInt64, "int64", "long", 8, false},
    {DType::kInt32, "int32", "int", 4, false},
    {DType::kInt16, "int16", "short", 2, false},
    {DType::kInt8, "int8", nullptr, 1, false},
    {DType::kUInt8, "uint8", nullptr, 1, false},
    {DType::kBool, "bool", nullptr, 1, false},
}};

const DTypeInfo& Info(DType dtype) {
  const auto index = static_cast<size_t>(dtype);
  STRATA_CHECK(index < kDTypes.size() && kDTypes[index].dtype == dtype) << index;
  return kDTypes[index];
}

}  // namespace

const char* DTypeName(DType dtype) { return Info(dtype).name; }

DType ParseDType(std::string_view name) {
  for (const DTypeInfo& info : kDTypes) {
    if (name == info.name || (info.alias && name == info.alias)) return info.dtype;
  }
  std::vector<std::string> names;
  for (const DTypeInfo& info : kDTypes) names.push_back(info.name);
  throw ConfigError(Str("there is no dtype \"", name, "\"", DidYouMean(name, names)));
}

int64_t DTypeSize(DType dtype) { return Info(dtype).size; }

bool IsFloating(DType dtype) { return Info(dtype).floating; }

int64_t Product(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (int64_t size : sizes) {
    if (__builtin_mul_overflow(product, size, &product)) return std::numeric_limits<int64_t>::max();
  }
  return product;
}

std::string TensorSpec::ToString() const { return Str(DTypeName(dtype), " ", FormatShape(shape)); }

int64_t BytesOf(const TensorSpecs& specs) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += spec.bytes();
  return bytes;
}

TensorSpecs WithRows(TensorSpecs sample, int64_t rows) {
  for (TensorSpec& spec : sample) spec.shape.insert(spec.shape.begin(), rows);
  return sample;
}

std::string ToString(const TensorSpecs& specs, const char* separator, const char* none) {
  std::vector<std::string> texts;
  for (const TensorSpec& spec : specs) texts.push_back(spec.ToString());
  return texts.empty() ? none : Join(texts, separator);
}

}  // namespace strata
