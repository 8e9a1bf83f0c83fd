#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include "engine/layers/packed_weight.h"

#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <array>
#include <type_traits>

#include "engine/base/check.h"
#include "engine/base/tensors/dry_run.h"
#include "engine/layers/cuda/launch.h"
#include "engine/layers/cuda/unpack_kernels.h"
#include "engine/layers/kernels/unpack.h"

namespace strata {
namespace {

/// The fewest elements for one thread. A multiple of the blocks of nf4.
constexpr int64_t kGrain = 1 << 16;

/// Calls function(begin, end) on several threads for ranges of [0, blocks) that together have at
/// least kGrain elements each.
template <class Function>
void ForBlocks(int64_t blocks, int64_t block, const Function& function) {
  at::parallel_for(0, blocks, std::max<int64_t>(kGrain / block, 1), function);
}

/// Writes the elements begin..end-1 in type T, by way of float32.
template <class T>
void ReadAs(const PackedWeight& weight, int64_t begin, int64_t end, T* to) {
  if constexpr (std::is_same_v<T, float>) {
    weight.Read(begin, {to + begin, static_cast<size_t>(end - begin)});
  } else {
    std::array<float, 1024> exact{};
    for (int64_t i = begin; i < end;) {
      const int64_t count = std::min<int64_t>(end - i, exact.size());
      weight.Read(i, std::span(exact).first(static_cast<size_t>(count)));
      unpack::Round(exact.data(), count, to + i);
      i += count;
    }
  }
}

template <class T>
void ReadAll(const PackedWeight& weight, const at::Tensor& dense) {
  T* const to = dense.mutable_data_ptr<T>();
  at::parallel_for(0, dense.numel(), kGrain,
                   [&](int64_t begin, int64_t end) { ReadAs(weight, begin, end, to); });
}

}  // namespace

PackedWeight::PackedWeight(Packing packing, int64_t rows, int64_t columns)
    : packing_(packing), rows_(rows), columns_(columns) {
  STRATA_CHECK(packing != Packing::kNone);
  codes_ = at::zeros({CodeBytes(packing, rows, columns)}, at::dtype(at::kByte));
  scales_ = at::zeros({ScaleCount(packing, rows, columns)}, at::dtype(at::kFloat));
}

void PackedWeight::Pack(const at::Tensor& values) {
  STRATA_CHECK(first_ == 0 && values.numel() == rows_ * columns_ && values.is_cpu())
      << values.sizes();
  const at::NoGradGuard no_grad;
  const at::Tensor exact = values.detach().to(at::kFloat).contiguous();
  const at::Device device = codes_.device();
  To(at::kCPU);
  if (!DryRun::IsOn()) {
    const float* const from = exact.const_data_ptr<float>();
    auto* const codes = codes_.mutable_data_ptr<uint8_t>();
    float* const scales = scales_.mutable_data_ptr<float>();
    const int64_t block = BlockElements(packing_, columns_), all = exact.numel();
    ForBlocks(scales_.numel(), block, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t first = i * block, count = std::min(block, all - first);
        scales[i] = packing_ == Packing::kNf4
                        ? unpack::PackNf4(from + first, count, codes + first / 2)
                        : unpack::PackInt8(from + first, count, codes + first);
      }
    });
  }
  To(device);
}

at::Tensor PackedWeight::Dense(at::ScalarType type) const {
  const at::NoGradGuard no_grad;
  if (!codes_.is_cpu() || KernelsFor(codes_)) {
    return Unpacked({packing_, codes_, scales_, first_, rows_, columns_}, type);
  }
  at::Tensor dense = at::empty({rows_, columns_}, at::dtype(type));
  if (DryRun::IsOn()) return dense;
  switch (type) {
    case at::kFloat:
      ReadAll<float>(*this, dense);
      break;
    case at::kBFloat16:
      ReadAll<at::BFloat16>(*this, dense);
      break;
    case at::kHalf:
      ReadAll<at::Half>(*this, dense);
      break;
    default:
      dense.copy_(Dense(at::kFloat));
  }
  return dense;
}

void PackedWeight::Read(int64_t begin, std::span<float> to) const {
  const auto* const codes = codes_.const_data_ptr<uint8_t>();
  const float* const scales = scales_.const_data_ptr<float>();
  const int64_t first = first_ + begin, count = std::ssize(to);
  if (packing_ == Packing::kNf4) {
    unpack::ReadNf4(codes, scales, first, count, to.data());
  } else {
    unpack::ReadInt8(codes, scales, columns_, first, count, to.data());
  }
}

std::shared_ptr<PackedWeight> PackedWeight::Rows(int64_t begin, int64_t size) const {
  auto rows = std::make_shared<PackedWeight>(*this);
  rows->first_ += begin * columns_;
  rows->rows_ = size;
  return rows;
}

void PackedWeight::To(at::Device device) {
  codes_ = codes_.to(device);
  scales_ = scales_.to(device);
}

at::Tensor PackedValue(at::IntArrayRef sizes, at::ScalarType type) {
  return at::empty(sizes, at::dtype(type).device(at::kMeta));
}

void CopyValue(const Parameter& from, const Parameter& to) {
  const at::NoGradGuard no_grad;
  STRATA_CHECK(!from.packed == !to.packed) << to.name;
  if (!from.packed) {
    to.value.copy_(from.value);
    return;
  }
  to.packed->codes().copy_(from.packed->codes());
  to.packed->scales().copy_(from.packed->scales());
}

void PackWeights(const LayerSpec& spec, Layer& layer) {
  if (spec.packed.weights.empty()) return;
  for (Parameter& parameter : layer.parameters()) {
    if (!spec.packed.Has(parameter.name)) continue;
    const at::Tensor& value = parameter.value;
    STRATA_CHECK(spec.IsFrozen(parameter.name) && value.dim() == 2) << parameter.name;
    parameter.packed =
        std::make_shared<PackedWeight>(spec.packed.packing, value.size(0), value.size(1));
    parameter.packed->Pack(value);
    parameter.value = PackedValue(value.sizes(), value.scalar_type());
  }
  layer.OnBound();
}

}  // namespace strata
