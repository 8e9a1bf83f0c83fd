#include "engine/data/dataset.h"

#include <algorithm>

#include "engine/base/split_mix.h"

namespace strata {

bool AreAlikeButForDim0(const TensorSpecs& one, const TensorSpecs& other) {
  return std::ranges::equal(one, other, [](TensorSpec a, const TensorSpec& b) {
    if (!a.shape.empty() && !b.shape.empty()) a.shape[0] = b.shape[0];
    return a == b;
  });
}

int64_t Dataset::input_bytes() const { return BytesOf(inputs()); }
int64_t Dataset::target_bytes() const { return BytesOf(targets()); }

void Dataset::ReadBatch(std::span<const int64_t> indices, int64_t epoch, std::byte* input,
                        std::byte* target) const {
  const int64_t input_step = input ? input_bytes() : 0, target_step = target ? target_bytes() : 0;
  for (const int64_t index : indices) {
    Read({index, epoch}, input, target);
    if (input) input += input_step;
    if (target) target += target_step;
  }
}

PlainSample Dataset::ReadPlain(Sample sample) const {
  PlainSample plain = {{inputs(), {}}, {targets(), {}}};
  plain.input.bytes.resize(static_cast<size_t>(input_bytes()));
  plain.target.bytes.resize(static_cast<size_t>(target_bytes()));
  Read(sample, reinterpret_cast<std::byte*>(plain.input.bytes.data()),
       reinterpret_cast<std::byte*>(plain.target.bytes.data()));
  return plain;
}

uint64_t SampleSeed(uint64_t seed, Sample sample, uint64_t purpose) {
  // Inverted, since ForwardSeed() of layers begins with the seed itself.
  uint64_t state = ~seed;
  for (const uint64_t word :
       {static_cast<uint64_t>(sample.epoch), static_cast<uint64_t>(sample.index), purpose}) {
    state = SplitMix(state + word);
  }
  return state;
}

}  // namespace strata
