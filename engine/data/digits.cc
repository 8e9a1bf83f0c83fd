// The data source "digits": the UCI optical digits, from a file of comma-separated numbers.
#include <charconv>
#include <cstring>
#include <vector>

#include "engine/base/cache.h"
#include "engine/base/error.h"
#include "engine/base/share.h"
#include "engine/base/text.h"
#include "engine/data/sources.h"

namespace strata::data {
namespace {

constexpr int kPixels = 64;
constexpr float kWhite = 16;
constexpr int64_t kHeldOut = 5;  // every fifth image is held out

struct Image {
  float pixels[kPixels];
  int64_t label;
};

class Digits : public Dataset {
 public:
  Digits(std::vector<Image> images, bool train) : images_(std::move(images)), train_(train) {}
  int64_t size() const override {
    return SplitSize(static_cast<int64_t>(images_.size()), kHeldOut, train_);
  }
  TensorSpec input() const override { return {{1, 8, 8}, DType::kFloat32}; }
  TensorSpec target() const override { return {{}, DType::kInt64}; }
  int64_t classes() const override { return 10; }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t index = sample.index;
    const Image& image = images_[static_cast<size_t>(SplitPlace(index, kHeldOut, train_))];
    if (input) std::memcpy(input, image.pixels, sizeof(image.pixels));
    if (target) std::memcpy(target, &image.label, sizeof(image.label));
  }
  std::string description() const override {
    return Str("digits: ", FormatCount(size()), " images of 8x8 (", train_ ? "train" : "test", ")");
  }

 private:
  std::vector<Image> images_;
  bool train_;
};

/// Reads one line: 64 pixels from 0 to 16 and the label, separated by commas.
Image ParseLine(std::string_view line, const std::string& place) {
  Image image{};
  const char* at = line.data();
  const char* end = line.data() + line.size();
  for (int column = 0; column <= kPixels; ++column) {
    const int limit = column < kPixels ? static_cast<int>(kWhite) : 9;
    int number = -1;
    const auto [next, error] = std::from_chars(at, end, number);
    const bool closed = column == kPixels ? next == end : (next != end && *next == ',');
    if (error != std::errc() || number < 0 || number > limit || !closed) {
      throw WorldError(Str(place, ": expected ", kPixels, " pixels from 0 to 16 and a label from ",
                           "0 to 9 with commas between them; column ", column + 1, " is wrong"));
    }
    if (column < kPixels) image.pixels[column] = static_cast<float>(number) / kWhite;
    image.label = number;
    at = next + 1;
  }
  return image;
}

std::vector<Image> ParseDigits(const std::string& text, const std::string& path) {
  std::vector<Image> images;
  int number = 0;
  for (const std::string& raw : Split(text, '\n')) {
    ++number;
    const std::string_view line = Trim(raw);
    if (!line.empty()) images.push_back(ParseLine(line, Str(path, ":", number)));
  }
  if (images.size() < static_cast<size_t>(kHeldOut)) {
    throw WorldError(Str(path, ": expected at least ", kHeldOut, " digits, got ", images.size()));
  }
  return images;
}

}  // namespace

std::unique_ptr<Dataset> OpenDigits(const DataSpec& spec, const DatasetContext& context) {
  const Value& option = spec.options["path"];
  std::string path = option.is_null() ? "" : ResolvePath(option.as_string(), context);
  if (path.empty()) path = SharedPath("data/digits.csv");
  if (path.empty()) path = CacheFolder() + "/data/digits.csv";
  const std::string text = ReadFile(path, "the UCI digits; tools/setup puts them there");
  return std::make_unique<Digits>(ParseDigits(text, path), IsTrain(spec));
}

}  // namespace strata::data
