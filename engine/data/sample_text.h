// Describes data as text for people, with its first sample.
#pragma once

#include <string>

#include "engine/data/dataset.h"

namespace strata {

/// Data whose samples can be shown as text.
class HasSampleText {
 public:
  virtual ~HasSampleText() = default;
  virtual std::string sample_text(int64_t index) const = 0;
};

/// The description, the shapes, and the first sample: as text, or an image of floats or bytes as a
/// small picture with two pixels per character, in colours if standard output shows them.
std::string DescribeWithPicture(const Dataset& dataset);

/// A picture of at most `columns` characters per line. `pixels` are channels (1 or 3), height,
/// width.
std::string PictureOf(const float* pixels, int64_t channels, int64_t height, int64_t width,
                      int64_t columns, bool colours);

}  // namespace strata
