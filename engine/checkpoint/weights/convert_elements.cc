// Each dtype can load an element as a double and save one from a double, so any two dtypes can be
// combined.
#include "engine/checkpoint/weights/convert_elements.h"

#include <bit>
#include <cmath>
#include <cstring>

#include "engine/base/check.h"

namespace strata {
namespace {

/// Conversion between the stored form of an element and a double, which represents every value of
/// the dtype exactly.
struct Half {
  using Stored = uint16_t;
  static constexpr uint32_t kBias = 127 - 15;  // float's exponent bias minus half's
  static double Load(Stored half) {
    const uint32_t sign = uint32_t{half & 0x8000U} << 16, size = half & 0x7fffU;
    if (size >= 0x7c00) return std::bit_cast<float>(sign | 0x7f800000 | (size & 1023) << 13);
    if (size >= 0x0400) return std::bit_cast<float>(sign | ((size << 13) + (kBias << 23)));
    return std::ldexp(sign ? -static_cast<double>(size) : size, -24);
  }
  static Stored Save(double given) {
    // Rounds to float first, as PyTorch does.
    const auto value = static_cast<float>(given);
    const auto sign = static_cast<Stored>(std::signbit(value) << 15);
    const float size = std::fabs(value);
    if (std::isnan(value)) return sign | 0x7e00;
    if (size >= 65520) return sign | 0x7c00;
    if (size < 0x1p-14F) return sign | static_cast<Stored>(std::nearbyint(size * 0x1p24F));
    const auto bits = std::bit_cast<uint32_t>(size);
    return sign | static_cast<Stored>(((bits + 0xfff + (bits >> 13 & 1)) >> 13) - (kBias << 10));
  }
};

struct BFloat {
  using Stored = uint16_t;
  static double Load(Stored bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }
  static Stored Save(double given) {
    const auto value = static_cast<float>(given);
    if (std::isnan(value)) return 0x7fc0;
    const auto bits = std::bit_cast<uint32_t>(value);
    return static_cast<Stored>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  }
};

template <class T>
struct Plain {
  using Stored = T;
  static double Load(T value) { return value; }
  static T Save(double value) { return static_cast<T>(value); }
};

template <class Work>
void WithType(DType dtype, const Work& work) {
  switch (dtype) {
    case DType::kFloat32:
      return work(Plain<float>());
    case DType::kFloat64:
      return work(Plain<double>());
    case DType::kFloat16:
      return work(Half());
    case DType::kBFloat16:
      return work(BFloat());
    default:
      STRATA_CHECK(false) << DTypeName(dtype);
  }
}

}  // namespace

bool CanConvert(DType from, DType to) { return from == to || (IsFloating(from) && IsFloating(to)); }

void ConvertElements(DType from, const void* source, DType to, void* target, int64_t count) {
  STRATA_CHECK(CanConvert(from, to)) << DTypeName(from) << " to " << DTypeName(to);
  if (from == to) {
    if (count > 0) std::memcpy(target, source, static_cast<size_t>(count * DTypeSize(from)));
    return;
  }
  WithType(from, [&]<class From>(From) {
    WithType(to, [&]<class To>(To) {
      const auto* in = static_cast<const typename From::Stored*>(source);
      auto* out = static_cast<typename To::Stored*>(target);
      for (int64_t i = 0; i < count; ++i) out[i] = To::Save(From::Load(in[i]));
    });
  });
}

}  // namespace strata
