// The synthetic data sources "images" and "tokens". A sample is computed each time it is read.
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/split_mix.h"
#include "engine/base/text.h"
#include "engine/data/sources.h"

namespace strata::data {
namespace {

/// The random number generator of a sample.
SplitMixRandom RandomOf(int64_t seed, int64_t index) {
  return SplitMixRandom(static_cast<uint64_t>(seed) * 0x9E3779B97F4A7C15ULL ^
                        static_cast<uint64_t>(index) * 0xD1B54A32D192ED03ULL);
}

class Images : public Dataset {
 public:
  explicit Images(const ImageOptions& options) : options_(options) {}
  int64_t size() const override { return options_.samples; }
  TensorSpec input() const override { return {options_.shape, DType::kFloat32}; }
  TensorSpec target() const override { return {{}, DType::kInt64}; }
  int64_t classes() const override { return options_.classes; }
  std::string description() const override { return options_.description; }

  /// Computes a sample: noise of variance one plus a sine wave along the last dim. The class
  /// determines the wave's length.
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t index = sample.index;
    SplitMixRandom random = RandomOf(options_.seed, index);
    const int64_t label = random.Below(options_.classes);
    if (target) std::memcpy(target, &label, sizeof(label));
    if (!input) return;
    const std::vector<float> wave = Wave(label);
    float* out = reinterpret_cast<float*>(input);
    const int64_t rows = this->input().elements() / static_cast<int64_t>(wave.size());
    for (int64_t row = 0; row < rows; ++row) {
      for (const float height : wave) *out++ = height + Noise(random);
    }
  }

 private:
  static float Noise(SplitMixRandom& random) {
    constexpr float kWidth = 3.4641016f;  // a uniform distribution this wide has variance one
    const float unit = static_cast<float>(random.Next() >> 40) * 0x1p-24f;
    return (unit - 0.5f) * kWidth;
  }
  std::vector<float> Wave(int64_t label) const {
    const int64_t width = options_.shape.empty() ? 1 : options_.shape.back();
    std::vector<float> wave(static_cast<size_t>(width));
    for (size_t x = 0; x < wave.size(); ++x) {
      const double turns = static_cast<double>(x) / static_cast<double>(wave.size());
      wave[x] =
          static_cast<float>(std::sin(6.283185307179586 * turns * static_cast<double>(label + 1)));
    }
    return wave;
  }
  ImageOptions options_;
};

class Tokens : public Dataset {
 public:
  Tokens(int64_t vocab, int64_t length, int64_t samples, int64_t seed)
      : vocab_(vocab), length_(length), samples_(samples), seed_(seed) {}
  int64_t size() const override { return samples_; }
  TensorSpec input() const override { return {{length_}, DType::kInt64}; }
  TensorSpec target() const override { return {{length_}, DType::kInt64}; }
  int64_t classes() const override { return vocab_; }
  std::string description() const override {
    return Str("tokens: ", FormatCount(samples_), " synthetic sequences of ", length_, " out of ",
               FormatCount(vocab_));
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t index = sample.index;
    SplitMixRandom random = RandomOf(seed_, index);
    int64_t token = random.Below(vocab_);
    for (int64_t i = 0; i < length_; ++i) {
      if (input) Put(input, i, token);
      token = random.Below(10) == 0 ? random.Below(vocab_) : (token * 31 + 17) % vocab_;
      if (target) Put(target, i, token);
    }
  }

 private:
  static void Put(std::byte* out, int64_t i, int64_t token) {
    std::memcpy(out + static_cast<size_t>(i) * sizeof(token), &token, sizeof(token));
  }
  int64_t vocab_, length_, samples_, seed_;
};

int64_t IntOption(const DataSpec& spec, const char* name, int64_t otherwise) {
  const Value& value = spec.options[name];
  return value.is_null() ? otherwise : value.as_int();
}

/// The splits have different seeds, so they are independent draws from the same distribution.
int64_t Seed(const DataSpec& spec) { return IsTrain(spec) ? 0 : 1; }

}  // namespace

std::unique_ptr<Dataset> MakeImages(const ImageOptions& options) {
  return std::make_unique<Images>(options);
}

std::unique_ptr<Dataset> OpenImages(const DataSpec& spec, const DatasetContext& context) {
  ImageOptions options;
  if (!spec.options["shape"].is_null()) {
    options.shape = spec.options["shape"].as_ints();
  } else {
    options.shape = context.input ? context.input->shape : std::vector<int64_t>{3, 32, 32};
  }
  options.classes = IntOption(spec, "classes", 10);
  options.samples = IntOption(spec, "samples", 1024);
  options.seed = Seed(spec);
  options.description = Str("images: ", FormatCount(options.samples), " synthetic images of ",
                            FormatShape(options.shape), ", ", options.classes, " classes");
  return MakeImages(options);
}

std::unique_ptr<Dataset> OpenTokens(const DataSpec& spec, const DatasetContext&) {
  return std::make_unique<Tokens>(spec.options["vocabulary"].as_int(),
                                  spec.options["length"].as_int(), IntOption(spec, "samples", 1024),
                                  Seed(spec));
}

}  // namespace strata::data
