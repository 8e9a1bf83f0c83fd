// Decodes image files: JPEG by libjpeg-turbo, PNG by libpng; and resizes images.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace strata::data {

/// Rows of pixels. A pixel is `channels` bytes, side by side.
struct Image {
  int height = 0;
  int width = 0;
  int channels = 3;  ///< 3 = red, green, blue; 1 = grey
  std::vector<uint8_t> pixels;
};

/// Decodes a JPEG or PNG, recognised by its first bytes, to 1 or 3 channels. Alpha is dropped and
/// the colours below it stay, as by Pillow's convert("RGB"). A JPEG may be decoded at 1/2, 1/4 or
/// 1/8 of its size as long as both sides keep at least `least` pixels, which saves most of the
/// work; 0 = always the full size. Throws WorldError that begins with `path` for anything that is
/// not one complete image, including a JPEG that libjpeg warns about.
Image DecodeImage(std::string_view bytes, int channels, int least, const std::string& path);

/// Resizes an image and writes it as planes of floats from 0 to 1: channels, height, width. Every
/// new pixel is the mean of the pixels it covers, weighted by a triangle (Pillow's and
/// torchvision's antialiased bilinear). `crop` cuts the longer side at both ends, so that nothing
/// is stretched.
void ResizeToPlanes(const Image& image, int height, int width, bool crop, float* out);

}  // namespace strata::data
