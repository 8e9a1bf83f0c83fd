#include "engine/runtime/saves/base_digest.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <functional>
#include <memory>

#include "engine/base/split_mix.h"
#include "engine/base/text.h"
#include "engine/checkpoint/slice.h"

namespace strata {
namespace {

/// A function that gives `size` elements from `begin` on, in double.
std::function<at::Tensor(int64_t begin, int64_t size)> ReaderOf(const StateTensor& tensor) {
  if (!tensor.packed) {
    return [values = tensor.memory.detach().cpu()](int64_t begin, int64_t size) {
      return values.narrow(0, begin, size).to(at::kDouble);
    };
  }
  auto packed = std::make_shared<PackedWeight>(*tensor.packed);
  packed->To(at::kCPU);
  return [packed](int64_t begin, int64_t size) {
    const at::Tensor values = at::empty({size}, at::dtype(at::kFloat));
    packed->Read(begin, {values.mutable_data_ptr<float>(), static_cast<size_t>(size)});
    return values.to(at::kDouble);
  };
}

uint64_t SumOf(const StateTensor& tensor) {
  const auto read = ReaderOf(tensor);
  const uint64_t name = SplitMix(0, tensor.name);
  std::atomic<uint64_t> sum = 0;
  constexpr int64_t kChunk = 1 << 16;  // elements; a copy in double takes little memory
  const auto add = [&](int64_t place, int64_t own, int64_t count) {
    at::parallel_for(0, count, kChunk, [&](int64_t begin, int64_t end) {
      uint64_t part = 0;
      for (; begin < end; begin += kChunk) {
        const int64_t size = std::min(kChunk, end - begin);
        const at::Tensor wide = read(own + begin, size);
        const double* const elements = wide.const_data_ptr<double>();
        for (int64_t i = 0; i < size; ++i) {
          const auto index = static_cast<uint64_t>(place + begin + i);
          part += SplitMix(SplitMix(name + index) ^ std::bit_cast<uint64_t>(elements[i]));
        }
      }
      sum += part;
    });
  };
  ForEachRun(Slice::Whole(tensor.spec.shape), tensor.slice, add);
  return sum;
}

}  // namespace

std::string DigestOfBase(const std::vector<StateTensor>& state, Transport& transport) {
  uint64_t sum = 0;
  for (const StateTensor& tensor : state) sum += SumOf(tensor);
  uint64_t all = 0;
  for (const std::string& of_rank : transport.Gather(std::to_string(sum))) {
    all += std::stoull(of_rank);
  }
  return Printf("%016llx", static_cast<unsigned long long>(all));
}

}  // namespace strata
