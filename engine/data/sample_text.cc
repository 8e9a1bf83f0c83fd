#include "engine/data/sample_text.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "engine/base/fd.h"
#include "engine/base/text.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

constexpr int64_t kColumns = 48;

bool IsImage(const TensorSpec& spec) {
  return spec.shape.size() == 3 && (spec.shape[0] == 1 || spec.shape[0] == 3) &&
         spec.shape[1] > 1 && spec.shape[2] > 1 &&
         (spec.dtype == DType::kFloat32 || spec.dtype == DType::kUInt8);
}

std::vector<float> FloatsOf(const TensorSpec& spec, const std::vector<std::byte>& bytes) {
  std::vector<float> pixels(static_cast<size_t>(spec.elements()));
  if (spec.dtype == DType::kFloat32) {
    std::memcpy(pixels.data(), bytes.data(), pixels.size() * sizeof(float));
  } else {
    std::ranges::transform(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(pixels.size()),
                           pixels.begin(), [](std::byte b) { return static_cast<float>(b); });
  }
  // Scale to 0 to 1, since normalised images have other ranges.
  const auto [least, most] = std::ranges::minmax(pixels);
  const float range = most > least ? most - least : 1;
  for (float& pixel : pixels) pixel = (pixel - least) / range;
  return pixels;
}

/// Red, green and blue of a new pixel, from 0 to 255: the mean over the pixels that it covers.
using Colour = std::array<int, 3>;

Colour ColourAt(const float* pixels, int64_t channels, int64_t height, int64_t width,
                const std::array<int64_t, 4>& box) {
  Colour colour{};
  const auto [top, bottom, left, right] = box;
  for (int64_t channel = 0; channel < 3; ++channel) {
    const float* plane = pixels + std::min(channel, channels - 1) * height * width;
    float sum = 0;
    for (int64_t y = top; y < bottom; ++y) {
      for (int64_t x = left; x < right; ++x) sum += plane[y * width + x];
    }
    const auto count = static_cast<float>((bottom - top) * (right - left));
    colour[static_cast<size_t>(channel)] = static_cast<int>(255 * sum / count + 0.5f);
  }
  return colour;
}

std::string Numbers(const Colour& colour) { return Join(colour, ";"); }

/// A character for terminals without colours: its darkness is the mean of both pixels.
std::string Shade(const Colour& upper, const Colour& lower) {
  static const char* const kShades[] = {" ", "\u2591", "\u2592", "\u2593", "\u2588"};
  int sum = 0;
  for (size_t i = 0; i < 3; ++i) sum += upper[i] + lower[i];
  return kShades[std::min(4, sum * 5 / (6 * 256))];
}

}  // namespace

std::string PictureOf(const float* pixels, int64_t channels, int64_t height, int64_t width,
                      int64_t columns, bool colours) {
  const int64_t across = std::min(columns, width);
  const int64_t down = std::max<int64_t>(1, (height * across / width + 1) / 2) * 2;
  const auto at = [&](int64_t row, int64_t column) {
    const int64_t top = std::min(row * height / down, height - 1);
    const int64_t left = column * width / across;
    return ColourAt(pixels, channels, height, width,
                    {top, std::max(top + 1, std::min((row + 1) * height / down, height)), left,
                     std::max(left + 1, (column + 1) * width / across)});
  };
  std::string text;
  for (int64_t row = 0; row < down; row += 2) {
    for (int64_t column = 0; column < across; ++column) {
      const Colour upper = at(row, column), lower = at(row + 1, column);
      text += colours ? Str("\x1b[38;2;", Numbers(upper), "m\x1b[48;2;", Numbers(lower), "m\u2580")
                      : Shade(upper, lower);
    }
    text += colours ? "\x1b[0m\n" : "\n";
  }
  return text;
}

std::string DescribeWithPicture(const Dataset& dataset) {
  std::string text = Str(dataset.description(), "\n", ToString(dataset.inputs(), ", "), " -> ",
                         ToString(dataset.targets(), ", ", "no target"),
                         dataset.classes() > 0 ? Str(", ", dataset.classes(), " classes") : "");
  if (const auto* texts = dynamic_cast<const HasSampleText*>(&dataset)) {
    return Str(text, "\nsample 0:\n", texts->sample_text(0));
  }
  const TensorSpec spec = dataset.inputs().at(0);
  if (!IsImage(spec)) return text;
  std::vector<std::byte> bytes(static_cast<size_t>(dataset.input_bytes()));
  dataset.Read(0, bytes.data(), nullptr);
  const std::vector<float> pixels = FloatsOf(spec, bytes);
  const std::string picture = PictureOf(pixels.data(), spec.shape[0], spec.shape[1], spec.shape[2],
                                        kColumns, ShowsColors(STDOUT_FILENO));
  return Str(text, "\nsample 0:\n", picture.substr(0, picture.size() - 1));
}

}  // namespace strata
