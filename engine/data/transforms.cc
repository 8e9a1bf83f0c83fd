// Steps on images and vectors. Random numbers depend only on (seed, epoch, index) and the position
// of the step in its chain, so the samples do not depend on the number of workers or replicas.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/split_mix.h"
#include "engine/data/files/resample.h"
#include "engine/data/step.h"
#include "engine/data/steps.h"

namespace strata::data {
namespace {

/// The random number generator of a sample.
class Draw : public SplitMixRandom {
 public:
  using SplitMixRandom::SplitMixRandom;
  /// Uniform from 0 to below 1.
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1p-53; }
  double Between(double least, double most) { return least + (most - least) * Unit(); }
  /// The standard normal distribution (Box and Muller).
  double Normal() {
    const double radius = std::sqrt(-2 * std::log(1 - Unit()));
    return radius * std::cos(2 * M_PI * Unit());
  }
  /// The gamma distribution (Marsaglia and Tsang, 2000).
  double Gamma(double shape) {
    if (shape < 1) {
      const double share = 1 - Unit();
      return Gamma(shape + 1) * std::pow(share, 1 / shape);
    }
    const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
    for (;;) {
      const double x = Normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(1 - Unit()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }
};

[[noreturn]] void Refuse(const char* step, const std::string& expected, const TensorSpec& got) {
  throw ConfigError(Str("the step ", step, " expects ", expected, ", got ", got.ToString()));
}

/// A step that changes the first input; other inputs and the target are passed through.
class Transform : public Step {
 public:
  using Change = std::function<void(const std::byte* from, std::byte* to, Draw& draw)>;

  Transform(const Value& options, StepInputs of, const DatasetContext& context, const char* name,
            TensorSpec made, Change change)
      : Step(of[0], name),
        seed_(static_cast<uint64_t>(context.seed)),
        purpose_(16 + CountBelow(options)),
        made_(std::move(made)),
        change_(std::move(change)),
        from_bytes_(Step::inputs()[0].bytes()),
        rest_bytes_(BytesOf(Step::inputs()) - from_bytes_) {}
  TensorSpecs inputs() const override {
    TensorSpecs specs = Step::inputs();
    specs[0] = made_;
    return specs;
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    if (!input) return of().Read(sample, nullptr, target);
    std::vector<std::byte> from(static_cast<size_t>(from_bytes_ + rest_bytes_));
    of().Read(sample, from.data(), target);
    Draw draw(SampleSeed(seed_, sample, purpose_));
    change_(from.data(), input, draw);
    std::memcpy(input + made_.bytes(), from.data() + from_bytes_, static_cast<size_t>(rest_bytes_));
  }

 private:
  const uint64_t seed_, purpose_;
  const TensorSpec made_;
  const Change change_;
  const int64_t from_bytes_, rest_bytes_;
};

struct ImageShape {
  int64_t channels, height, width;
};

/// The shape of the first input as an image. Throws ConfigError if it is not one, or, with
/// `floats`, not of float32.
ImageShape ImageOf(const char* step, const StepInputs& of, bool floats) {
  const TensorSpec spec = of[0]->inputs().at(0);
  if (spec.shape.size() != 3 || (floats && spec.dtype != DType::kFloat32)) {
    Refuse(step,
           floats ? "float32 images (channels, height, width); to_float{} makes them"
                  : "images (channels, height, width)",
           spec);
  }
  return {spec.shape[0], spec.shape[1], spec.shape[2]};
}

const float* Floats(const std::byte* bytes) { return reinterpret_cast<const float*>(bytes); }
float* Floats(std::byte* bytes) { return reinterpret_cast<float*>(bytes); }

TensorSpec FloatInput(const StepInputs& of) {
  const TensorSpec spec = of[0]->inputs().at(0);
  if (spec.dtype != DType::kFloat32) Refuse("normalise", "float32; to_float{} makes them", spec);
  return spec;
}

/// The numbers of an option, one per channel (dim 0). A single number holds for all channels.
std::vector<float> PerChannel(const Value& options, const char* name, int64_t channels) {
  std::vector<float> values;
  for (const Value& value : options[name].as_list()) {
    values.push_back(static_cast<float>(value.as_double()));
  }
  if (values.size() == 1) values.resize(static_cast<size_t>(channels), values[0]);
  if (values.size() == static_cast<size_t>(channels)) return values;
  throw ConfigError(Str("normalise: ", name, " has ", values.size(), " numbers, the input has ",
                        Plural(channels, "channel")));
}

template <class T>
void ToFloats(const std::byte* from, int64_t count, float scale, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + static_cast<size_t>(i) * sizeof(T), sizeof(T));
    to[i] = static_cast<float>(value) * scale;
  }
}

void ToFloats(DType dtype, const std::byte* from, int64_t count, float scale, float* to) {
  switch (dtype) {
    case DType::kFloat32:
      return ToFloats<float>(from, count, scale, to);
    case DType::kFloat64:
      return ToFloats<double>(from, count, scale, to);
    case DType::kInt64:
      return ToFloats<int64_t>(from, count, scale, to);
    case DType::kInt32:
      return ToFloats<int32_t>(from, count, scale, to);
    case DType::kInt16:
      return ToFloats<int16_t>(from, count, scale, to);
    case DType::kInt8:
      return ToFloats<int8_t>(from, count, scale, to);
    case DType::kUInt8:
    case DType::kBool:
      return ToFloats<uint8_t>(from, count, scale, to);
    default:
      throw ConfigError(Str("to_float: ", DTypeName(dtype), " is not read"));
  }
}

/// Replaces the class by a one-hot vector.
class OneHot : public Step {
 public:
  OneHot(std::shared_ptr<const Dataset> of, int64_t classes)
      : Step(std::move(of), "one_hot"), classes_(classes) {}
  TensorSpecs targets() const override { return {{{classes_}, DType::kFloat32}}; }
  int64_t classes() const override { return 0; }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    int64_t label = 0;
    of().Read(sample, input, target ? reinterpret_cast<std::byte*>(&label) : nullptr);
    if (!target) return;
    if (label < 0 || label >= classes_) {
      throw ConfigError(Str("one_hot: sample ", sample.index, " has the class ", label,
                            ", expected 0 to ", classes_ - 1));
    }
    std::fill_n(Floats(target), classes_, 0.0f);
    Floats(target)[label] = 1;
  }

 private:
  const int64_t classes_;
};

/// Mixup (Zhang et al., 2018): x = a x1 + (1 - a) x2 with a from a beta distribution; targets
/// likewise.
class MixUp : public Step {
 public:
  MixUp(const Value& options, std::shared_ptr<const Dataset> of, int64_t seed)
      : Step(std::move(of), "mix_up"),
        alpha_(options["alpha"].as_double()),
        seed_(static_cast<uint64_t>(seed)),
        purpose_(16 + CountBelow(options)) {
    for (const TensorSpecs& specs : {inputs(), targets()}) {
      for (const TensorSpec& spec : specs) {
        if (spec.dtype == DType::kFloat32) continue;
        Refuse("mix_up", "float32 inputs and targets; to_float{} and one_hot{} make them", spec);
      }
    }
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    Draw draw(SampleSeed(seed_, sample, purpose_));
    const double one = draw.Gamma(alpha_), other = draw.Gamma(alpha_);
    const auto share = static_cast<float>(one + other > 0 ? one / (one + other) : 1);
    const Sample second = {draw.Below(size()), sample.epoch};
    std::vector<std::byte> more_input(input ? static_cast<size_t>(input_bytes()) : 0);
    std::vector<std::byte> more_target(target ? static_cast<size_t>(target_bytes()) : 0);
    of().Read(sample, input, target);
    of().Read(second, input ? more_input.data() : nullptr, target ? more_target.data() : nullptr);
    Mix(more_input, share, input);
    Mix(more_target, share, target);
  }

 private:
  static void Mix(const std::vector<std::byte>& second, float share, std::byte* first) {
    float* to = Floats(first);
    const float* from = Floats(second.data());
    for (size_t i = 0; i < second.size() / sizeof(float); ++i) {
      to[i] = share * to[i] + (1 - share) * from[i];
    }
  }

  const double alpha_;
  const uint64_t seed_, purpose_;
};

}  // namespace

std::unique_ptr<Dataset> OpenResize(const Value& options, StepInputs of,
                                    const DatasetContext& context) {
  const ImageShape shape = ImageOf("resize", of, true);
  const std::vector<int64_t> size = options["size"].as_ints();
  const Taps down(static_cast<int>(shape.height), 0, static_cast<float>(shape.height),
                  static_cast<int>(size[0]));
  const Taps across(static_cast<int>(shape.width), 0, static_cast<float>(shape.width),
                    static_cast<int>(size[1]));
  return std::make_unique<Transform>(
      options, of, context, "resize",
      TensorSpec{{shape.channels, size[0], size[1]}, DType::kFloat32},
      [=](const std::byte* from, std::byte* to, Draw&) {
        for (int64_t channel = 0; channel < shape.channels; ++channel) {
          Resample(Floats(from) + channel * shape.height * shape.width, down, across,
                   Floats(to) + channel * size[0] * size[1]);
        }
      });
}

std::unique_ptr<Dataset> OpenRandomCrop(const Value& options, StepInputs of,
                                        const DatasetContext& context) {
  const ImageShape shape = ImageOf("random_crop", of, false);
  const std::vector<int64_t> size = options["size"].as_ints();
  const int64_t padding = options["padding"].as_int();
  const TensorSpec spec = of[0]->inputs()[0];
  const int64_t rows = shape.height + 2 * padding - size[0];
  const int64_t columns = shape.width + 2 * padding - size[1];
  if (rows < 0 || columns < 0) {
    Refuse("random_crop", Str("images of at least ", size[0], "x", size[1], " with their padding"),
           spec);
  }
  const int64_t item = DTypeSize(spec.dtype);
  return std::make_unique<Transform>(
      options, of, context, "random_crop",
      TensorSpec{{shape.channels, size[0], size[1]}, spec.dtype},
      [=](const std::byte* from, std::byte* to, Draw& draw) {
        const int64_t top = draw.Below(rows + 1) - padding,
                      left = draw.Below(columns + 1) - padding;
        std::memset(to, 0, static_cast<size_t>(shape.channels * size[0] * size[1] * item));
        const int64_t first = std::max<int64_t>(0, -left);
        const int64_t last = std::min(size[1], shape.width - left);
        for (int64_t row = 0; row < shape.channels * size[0]; ++row) {
          const int64_t channel = row / size[0], y = top + row % size[0];
          if (y < 0 || y >= shape.height || last <= first) continue;
          const int64_t source = (channel * shape.height + y) * shape.width + left + first;
          std::memcpy(to + (row * size[1] + first) * item, from + source * item,
                      static_cast<size_t>((last - first) * item));
        }
      });
}

std::unique_ptr<Dataset> OpenFlip(const Value& options, StepInputs of,
                                  const DatasetContext& context) {
  const ImageShape shape = ImageOf("flip", of, false);
  const TensorSpec spec = of[0]->inputs()[0];
  const double chance = options["chance"].as_double();
  const int64_t item = DTypeSize(spec.dtype);
  return std::make_unique<Transform>(
      options, of, context, "flip", spec, [=](const std::byte* from, std::byte* to, Draw& draw) {
        const bool flips = draw.Unit() < chance;
        if (!flips)
          return static_cast<void>(std::memcpy(to, from, static_cast<size_t>(spec.bytes())));
        for (int64_t row = 0; row < shape.channels * shape.height; ++row) {
          for (int64_t x = 0; x < shape.width; ++x) {
            std::memcpy(to + (row * shape.width + x) * item,
                        from + ((row + 1) * shape.width - 1 - x) * item, static_cast<size_t>(item));
          }
        }
      });
}

std::unique_ptr<Dataset> OpenJitter(const Value& options, StepInputs of,
                                    const DatasetContext& context) {
  ImageOf("jitter", of, true);
  const TensorSpec spec = of[0]->inputs()[0];
  const double brightness = options["brightness"].as_double();
  const double contrast = options["contrast"].as_double();
  return std::make_unique<Transform>(
      options, of, context, "jitter", spec, [=](const std::byte* from, std::byte* to, Draw& draw) {
        const auto factor = [&](double reach) {
          return static_cast<float>(draw.Between(std::max(0.0, 1 - reach), 1 + reach));
        };
        const float light = factor(brightness), spread = factor(contrast);
        const int64_t count = spec.elements();
        double sum = 0;
        for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(Floats(from)[i]);
        const auto mean = static_cast<float>(light * sum / static_cast<double>(count));
        for (int64_t i = 0; i < count; ++i) {
          Floats(to)[i] = (Floats(from)[i] * light - mean) * spread + mean;
        }
      });
}

std::unique_ptr<Dataset> OpenNormalise(const Value& options, StepInputs of,
                                       const DatasetContext& context) {
  const TensorSpec spec = FloatInput(of);
  const int64_t channels = spec.shape.empty() ? 1 : spec.shape[0];
  const std::vector<float> mean = PerChannel(options, "mean", channels);
  const std::vector<float> deviation = PerChannel(options, "std", channels);
  for (const float value : deviation) {
    if (!(value > 0)) throw ConfigError(Str("normalise: std must be above 0, got ", value));
  }
  const int64_t plane = spec.elements() / std::max<int64_t>(1, channels);
  return std::make_unique<Transform>(
      options, of, context, "normalise", spec, [=](const std::byte* from, std::byte* to, Draw&) {
        for (int64_t i = 0; i < channels * plane; ++i) {
          const auto channel = static_cast<size_t>(i / plane);
          Floats(to)[i] = (Floats(from)[i] - mean[channel]) / deviation[channel];
        }
      });
}

std::unique_ptr<Dataset> OpenToFloat(const Value& options, StepInputs of,
                                     const DatasetContext& context) {
  const TensorSpec spec = of[0]->inputs().at(0);
  const double fallback = spec.dtype == DType::kUInt8 ? 1.0 / 255 : 1;
  const Value& option = options["scale"];
  const auto scale = static_cast<float>(option.is_null() ? fallback : option.as_double());
  if (DTypeSize(spec.dtype) == 2 && IsFloating(spec.dtype)) {
    Refuse("to_float", "numbers of another dtype", spec);
  }
  return std::make_unique<Transform>(
      options, of, context, "to_float", TensorSpec{spec.shape, DType::kFloat32},
      [=](const std::byte* from, std::byte* to, Draw&) {
        ToFloats(spec.dtype, from, spec.elements(), scale, Floats(to));
      });
}

std::unique_ptr<Dataset> OpenOneHot(const Value& options, StepInputs of, const DatasetContext&) {
  const TensorSpecs targets = of[0]->targets();
  if (targets != TensorSpecs{{{}, DType::kInt64}}) {
    Refuse("one_hot", "an int64 class as target", targets.empty() ? TensorSpec{} : targets[0]);
  }
  const Value& option = options["classes"];
  const int64_t classes = option.is_null() ? of[0]->classes() : option.as_int();
  if (classes > 0) return std::make_unique<OneHot>(of[0], classes);
  throw ConfigError("one_hot needs classes, since the data does not tell how many there are");
}

std::unique_ptr<Dataset> OpenMixUp(const Value& options, StepInputs of,
                                   const DatasetContext& context) {
  return std::make_unique<MixUp>(options, of[0], context.seed);
}

}  // namespace strata::data
