#include "engine/data/dataset.h"

#include <algorithm>

namespace strata {

bool AreAlikeButForDim0(const TensorSpecs& one, const TensorSpecs& other) {
  return std::ranges::equal(one, other, [](TensorSpec a, const TensorSpec& b) {
    if (!a.shape.empty() && !b.shape.empty()) a.shape[0] = b.shape[0];
    return a == b;
  });
}

int64_t BytesOf(const TensorSpecs& specs) {
  int64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += spec.bytes();
  return bytes;
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
  uint64_t state = seed;
  for (const uint64_t word :
       {static_cast<uint64_t>(sample.epoch), static_cast<uint64_t>(sample.index), purpose}) {
    // SplitMix64's step (Steele, Lea and Flood, 2014) between any two words.
    state += 0x9e3779b97f4a7c15 + word;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9;
    state = (state ^ (state >> 27)) * 0x94d049bb133111eb;
    state ^= state >> 31;
  }
  return state;
}

}  // namespace strata
