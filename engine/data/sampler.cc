#include "engine/data/sampler.h"

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/fields/tensor_spec.h"
#include "engine/base/text.h"

namespace strata {
namespace {

void RequirePositive(const char* what, int64_t value) {
  if (value < 1) throw ConfigError(Str(what, " must be at least 1, got ", value));
}

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b == 0 ? 0 : 1); }

}  // namespace

Sampler::Sampler(const SamplerOptions& options) : options_(options), order_(options.samples) {
  RequirePositive("the number of samples", options.samples);
  RequirePositive("micro_batch_size", options.micro_batch_size);
  RequirePositive("micro_batches", options.micro_batches);
  RequirePositive("the number of replicas", options.replicas);
  steps_per_epoch_ = CeilDiv(options.samples, StepSize());
}

int64_t Sampler::StepSize() const {
  return Product({{options_.replicas, options_.micro_batches, options_.micro_batch_size}});
}

int64_t Sampler::samples(int64_t step) const {
  const int64_t in_epoch = step % steps_per_epoch_;
  return std::min(StepSize(), options_.samples - in_epoch * StepSize());
}

int64_t Sampler::micro_batches(int64_t step) const {
  // The first replica is given samples first, so its number of micro-batches is the largest.
  return std::min(options_.micro_batches, CeilDiv(samples(step), options_.micro_batch_size));
}

bool Sampler::fills_all(int64_t step) const {
  return samples(step) > StepSize() - options_.micro_batch_size;
}

void Sampler::LoadEpoch(int64_t epoch) {
  if (epoch == epoch_ || !options_.shuffle) return;
  const uint64_t seed =
      static_cast<uint64_t>(options_.seed) * 1000003 + static_cast<uint64_t>(epoch);
  const int64_t window = options_.window > 0 ? options_.window : options_.samples;
  order_ = SampleOrder::Windowed(options_.samples, window, seed);
  epoch_ = epoch;
}

std::vector<int64_t> Sampler::Indices(int64_t step, int replica, int64_t m) {
  LoadEpoch(step / steps_per_epoch_);
  const int64_t in_epoch = step % steps_per_epoch_;
  const int64_t micro_batch = (in_epoch * options_.replicas + replica) * options_.micro_batches + m;
  const int64_t begin =
      std::min(options_.samples, Product({{micro_batch, options_.micro_batch_size}}));
  const int64_t end = std::min(options_.samples, begin + options_.micro_batch_size);
  std::vector<int64_t> indices;
  for (int64_t place = begin; place < end; ++place) indices.push_back(order_[place]);
  return indices;
}

}  // namespace strata
