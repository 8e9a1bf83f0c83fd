// The data source "cifar10": records of CIFAR-10's binary version, resized and normalised.
#include "engine/job/cifar10.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/sources.h"

namespace strata::data {
namespace {

constexpr int kSide = kCifar10Side;
constexpr int kPlane = kSide * kSide;
constexpr size_t kRecord = 1 + 3 * kPlane;

/// The source of one output pixel along one dim: the input pixels on both sides of it, and the
/// weight of the second one.
struct Tap {
  int low, high;
  float share;
};

/// The taps of `size` output pixels: bilinear with half-pixel centres, as PyTorch's
/// interpolate(mode="bilinear", align_corners=False).
std::vector<Tap> Taps(int64_t size) {
  std::vector<Tap> taps;
  for (int64_t i = 0; i < size; ++i) {
    const float scale = static_cast<float>(kSide) / static_cast<float>(size);
    const float place = std::max(0.0f, (static_cast<float>(i) + 0.5f) * scale - 0.5f);
    const int low = std::min(static_cast<int>(place), kSide - 1);
    taps.push_back({low, std::min(low + 1, kSide - 1), place - static_cast<float>(low)});
  }
  return taps;
}

class Cifar10 : public Dataset {
 public:
  Cifar10(std::string records, int64_t height, int64_t width, std::string description)
      : records_(std::move(records)),
        rows_(Taps(height)),
        columns_(Taps(width)),
        description_(std::move(description)) {}
  int64_t size() const override { return static_cast<int64_t>(records_.size() / kRecord); }
  TensorSpec input() const override {
    return {{3, static_cast<int64_t>(rows_.size()), static_cast<int64_t>(columns_.size())},
            DType::kFloat32};
  }
  TensorSpec target() const override { return {{}, DType::kInt64}; }
  int64_t classes() const override { return 10; }
  std::string description() const override { return description_; }

  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t index = sample.index;
    const auto* record =
        reinterpret_cast<const uint8_t*>(records_.data()) + static_cast<size_t>(index) * kRecord;
    const int64_t label = record[0];
    if (target) std::memcpy(target, &label, sizeof(label));
    if (!input) return;
    float* out = reinterpret_cast<float*>(input);
    for (size_t channel = 0; channel < 3; ++channel) {
      out = ReadChannel(record + 1 + channel * kPlane, channel, out);
    }
  }

 private:
  /// Resizes and normalises one channel into `out`. Returns the pointer behind its last pixel.
  float* ReadChannel(const uint8_t* plane, size_t channel, float* out) const {
    const auto mean = static_cast<float>(kCifar10Mean[channel]);
    const auto deviation = static_cast<float>(kCifar10Deviation[channel]);
    for (const Tap& row : rows_) {
      const uint8_t* low = plane + row.low * kSide;
      const uint8_t* high = plane + row.high * kSide;
      for (const Tap& column : columns_) {
        const float top = Mix(low[column.low], low[column.high], column.share);
        const float bottom = Mix(high[column.low], high[column.high], column.share);
        *out++ = (Mix(top, bottom, row.share) / 255 - mean) / deviation;
      }
    }
    return out;
  }
  static float Mix(float a, float b, float share) { return a + (b - a) * share; }

  std::string records_;
  std::vector<Tap> rows_, columns_;
  std::string description_;
};

void CheckFile(const std::string& path, const std::string& content) {
  if (content.empty() || content.size() % kRecord != 0) {
    throw WorldError(Str(path, ": expected records of ", kRecord,
                         " bytes (a label and 3x32x32 pixels), got ", content.size(), " bytes"));
  }
  for (size_t at = 0; at < content.size(); at += kRecord) {
    if (static_cast<uint8_t>(content[at]) > 9) {
      throw WorldError(Str(path, ": record ", at / kRecord, " has label ",
                           static_cast<int>(static_cast<uint8_t>(content[at])),
                           ", expected 0 to 9"));
    }
  }
}

std::string ReadRecords(const std::string& folder, bool train) {
  std::vector<std::string> names;
  if (train) {
    for (int i = 1; i <= 5; ++i) names.push_back(Str("data_batch_", i, ".bin"));
  } else {
    names.push_back("test_batch.bin");
  }
  std::string records;
  for (const std::string& name : names) {
    const std::string path = folder + "/" + name;
    const std::string content = ReadFile(path, "CIFAR-10's binary version");
    CheckFile(path, content);
    records += content;
  }
  return records;
}

/// Height and width of the images: the option `size`, else the job's input, else 32.
std::array<int64_t, 2> Size(const DataSpec& spec, const DatasetContext& context) {
  const Value& size = spec.options["size"];
  if (!size.is_null() && size.as_int() > 0) return {size.as_int(), size.as_int()};
  if (!context.input) return {kSide, kSide};
  const std::vector<int64_t>& shape = context.input->shape;
  if (shape.size() != 3 || shape[0] != 3 || context.input->dtype != DType::kFloat32) {
    throw ConfigError(Str("cifar10 gives float32 images (3, height, width), the job's input is ",
                          context.input->ToString()));
  }
  return {shape[1], shape[2]};
}

}  // namespace

std::unique_ptr<Dataset> OpenCifar10(const DataSpec& spec, const DatasetContext& context) {
  const auto [height, width] = Size(spec, context);
  const bool train = IsTrain(spec);
  const Value& option = spec.options["path"];
  const std::string path = option.is_null() ? "" : option.as_string();
  if (path.empty()) {
    const int64_t samples = train ? 1024 : 256;
    const std::string description =
        Str("cifar10: no folder given, ", FormatCount(samples), " synthetic images of ", height,
            "x", width, " (", train ? "train" : "test", ")");
    return MakeImages({{3, height, width}, 10, samples, train ? 0 : 1, description});
  }
  std::string records = ReadRecords(ResolvePath(path, context), train);
  const std::string description =
      Str("cifar10: ", FormatCount(static_cast<int64_t>(records.size() / kRecord)),
          " images, resized to ", height, "x", width, " (", train ? "train" : "test", ")");
  return std::make_unique<Cifar10>(std::move(records), height, width, description);
}

}  // namespace strata::data
