#include "engine/base/tensors/dtype.h"

#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {
namespace {

constexpr std::array<std::pair<DType, at::ScalarType>, 10> kTypes = {{
    {DType::kFloat32, at::kFloat},
    {DType::kFloat64, at::kDouble},
    {DType::kFloat16, at::kHalf},
    {DType::kBFloat16, at::kBFloat16},
    {DType::kInt64, at::kLong},
    {DType::kInt32, at::kInt},
    {DType::kInt16, at::kShort},
    {DType::kInt8, at::kChar},
    {DType::kUInt8, at::kByte},
    {DType::kBool, at::kBool},
}};

}  // namespace

at::ScalarType ToScalarType(DType dtype) {
  for (const auto& [ours, theirs] : kTypes) {
    if (ours == dtype) return theirs;
  }
  return at::kFloat;
}

DType FromScalarType(at::ScalarType type) {
  for (const auto& [ours, theirs] : kTypes) {
    if (theirs == type) return ours;
  }
  throw ConfigError(Str("a tensor of type ", c10::toString(type), " cannot cross layers"));
}

}  // namespace strata
