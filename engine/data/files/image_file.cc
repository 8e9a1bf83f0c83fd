#include "engine/data/files/image_file.h"

// jpeglib.h needs these two headers before it.
#include <jpeglib.h>
#include <png.h>
#include <zlib.h>

#include <algorithm>
#include <csetjmp>
#include <cstddef>
#include <cstdio>
#include <cstring>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/files/resample.h"

namespace strata::data {
namespace {

[[noreturn]] void Refuse(const std::string& path, const std::string& what) {
  throw WorldError(Str(path, ": ", what));
}

/// The most pixels that a file of this size can hold; a header that announces more is damaged and
/// would make us allocate too much memory. The densest format is a PNG with 8 pixels per byte,
/// which deflate compresses 1,032 times. (JPEG reaches 512 pixels per byte.)
int64_t MostPixels(std::string_view bytes) {
  constexpr int64_t kMost = int64_t{1} << 28, kMostOfAByte = 8 * 1032;
  return std::min(kMost, std::ssize(bytes) * kMostOfAByte);
}

[[noreturn]] void RefuseSize(int64_t width, int64_t height, std::string_view bytes,
                             const std::string& path) {
  Refuse(path, Str("an image of ", width, "x", height, " pixels is not read from ", bytes.size(),
                   " bytes"));
}

// Both libraries report errors through functions that must not return, so these use longjmp(). No
// object with a destructor may live in a stack frame that the jump skips.

struct JpegErrors {
  jpeg_error_mgr manager;
  jmp_buf leave;
  char text[JMSG_LENGTH_MAX] = "";
};

void LeaveJpeg(j_common_ptr jpeg) {
  auto* errors = reinterpret_cast<JpegErrors*>(jpeg->err);
  jpeg->err->format_message(jpeg, errors->text);
  longjmp(errors->leave, 1);
}

/// Treats a warning as an error. It means damaged data, which the library would replace by grey
/// pixels.
void RefuseWarning(j_common_ptr jpeg, int level) {
  if (level < 0) LeaveJpeg(jpeg);
}

struct JpegTask {
  std::string_view bytes;
  int channels;
  int least;
  Image* image;
};

/// The smallest scale, in eighths, at which both sides keep at least `least` pixels.
unsigned ScaleOf(const jpeg_decompress_struct& jpeg, int least) {
  const auto side = static_cast<int>(std::min(jpeg.image_height, jpeg.image_width));
  unsigned scale = 8;
  while (least > 0 && scale > 1 && side * static_cast<int>(scale / 2) / 8 >= least) scale /= 2;
  return scale;
}

/// Decodes everything between creating and destroying the decompressor. Returns false if the image
/// has too many pixels.
bool ReadJpeg(jpeg_decompress_struct& jpeg, const JpegTask& task) {
  jpeg_mem_src(&jpeg, reinterpret_cast<const unsigned char*>(task.bytes.data()), task.bytes.size());
  jpeg_read_header(&jpeg, TRUE);
  const bool is_ink = jpeg.jpeg_color_space == JCS_CMYK || jpeg.jpeg_color_space == JCS_YCCK;
  jpeg.out_color_space = is_ink ? JCS_CMYK : task.channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg.scale_num = ScaleOf(jpeg, task.least);
  jpeg.scale_denom = 8;
  Image& image = *task.image;
  if (int64_t{jpeg.image_height} * jpeg.image_width > MostPixels(task.bytes)) return false;
  jpeg_start_decompress(&jpeg);
  image.height = static_cast<int>(jpeg.output_height);
  image.width = static_cast<int>(jpeg.output_width);
  image.channels = is_ink ? 4 : task.channels;
  const size_t row = size_t{jpeg.output_width} * static_cast<size_t>(image.channels);
  image.pixels.resize(row * jpeg.output_height);
  while (jpeg.output_scanline < jpeg.output_height) {
    JSAMPROW place = image.pixels.data() + row * jpeg.output_scanline;
    jpeg_read_scanlines(&jpeg, &place, 1);
  }
  jpeg_finish_decompress(&jpeg);
  return true;
}

/// Converts CMYK, which such files store inverted, to red, green and blue, or to grey.
void ConvertFromInks(Image& image, int channels) {
  uint8_t* to = image.pixels.data();
  for (size_t at = 0; at + 4 <= image.pixels.size(); at += 4) {
    int light[3];
    for (size_t i = 0; i < 3; ++i) light[i] = image.pixels[at + i] * image.pixels[at + 3] / 255;
    if (channels == 1) {
      *to++ = static_cast<uint8_t>((299 * light[0] + 587 * light[1] + 114 * light[2]) / 1000);
    } else {
      for (const int value : light) *to++ = static_cast<uint8_t>(value);
    }
  }
  image.pixels.resize(static_cast<size_t>(to - image.pixels.data()));
  image.channels = channels;
}

Image DecodeJpeg(std::string_view bytes, int channels, int least, const std::string& path) {
  Image image;
  const JpegTask task = {bytes, channels, least, &image};
  jpeg_decompress_struct jpeg;
  JpegErrors errors;
  jpeg.err = jpeg_std_error(&errors.manager);
  errors.manager.error_exit = LeaveJpeg;
  errors.manager.emit_message = RefuseWarning;
  volatile bool fits = true;
  if (setjmp(errors.leave) == 0) {
    jpeg_create_decompress(&jpeg);
    fits = ReadJpeg(jpeg, task);
  }
  const int64_t width = jpeg.image_width, height = jpeg.image_height;
  jpeg_destroy_decompress(&jpeg);
  if (errors.text[0] != '\0') Refuse(path, Str("no whole JPEG: ", errors.text));
  if (!fits) RefuseSize(width, height, bytes, path);
  if (image.channels == 4) ConvertFromInks(image, channels);
  return image;
}

uint32_t BigAt(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value = value << 8 | static_cast<uint8_t>(bytes[at + i]);
  return value;
}

/// Verifies the checksums of all chunks that contribute pixels, up to IEND. libpng does not check
/// what follows the last row.
void CheckPngParts(std::string_view bytes, const std::string& path) {
  // Bytes of the length, name and checksum of a chunk.
  constexpr size_t kMagic = 8, kAround = 12;
  for (size_t at = kMagic;;) {
    const size_t left = bytes.size() - at;
    const size_t length = left >= kAround ? BigAt(bytes, at) : 0;
    if (left < kAround || length > left - kAround) Refuse(path, "no whole PNG: it is cut off");
    const std::string_view part = bytes.substr(at + 4, 4 + length);
    const auto sum =
        crc32(0, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
    const bool is_critical = part[0] >= 'A' && part[0] <= 'Z';
    if (is_critical && sum != BigAt(bytes, at + 8 + length)) {
      Refuse(path, Str("no whole PNG: the checksum of ", part.substr(0, 4), " is wrong"));
    }
    if (part.starts_with("IEND")) return;
    at += kAround + length;
  }
}

struct PngErrors {
  jmp_buf leave;
  char text[256] = "";
};

void LeavePng(png_structp png, png_const_charp text) {
  auto* errors = static_cast<PngErrors*>(png_get_error_ptr(png));
  std::snprintf(errors->text, sizeof(errors->text), "%s", text);
  longjmp(errors->leave, 1);
}

/// Warnings of libpng concern chunks that contribute no pixels.
void IgnoreWarning(png_structp, png_const_charp) {}

struct PngTask {
  std::string_view bytes;
  size_t at;
  int channels;
  Image* image;
};

void GivePngBytes(png_structp png, png_bytep to, size_t count) {
  auto* task = static_cast<PngTask*>(png_get_io_ptr(png));
  if (count > task->bytes.size() - task->at) png_error(png, "it is cut off");
  std::memcpy(to, task->bytes.data() + task->at, count);
  task->at += count;
}

/// Asks libpng for 8 bits per channel without alpha. The image is grey or colour as in the file,
/// but always colour if three channels are wanted. Gamma is not corrected, so the values are those
/// of the file.
int ChoosePngChannels(png_structp png, png_infop info, int channels) {
  png_set_expand(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  const bool is_grey = (png_get_color_type(png, info) & PNG_COLOR_MASK_COLOR) == 0;
  if (is_grey && channels == 3) png_set_gray_to_rgb(png);
  return is_grey ? channels : 3;
}

/// Decodes everything between creating and destroying the reader. Returns false if the image has
/// too many pixels.
bool ReadPng(png_structp png, png_infop info, PngTask& task) {
  png_set_keep_unknown_chunks(png, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  png_set_read_fn(png, &task, GivePngBytes);
  png_read_info(png, info);
  Image& image = *task.image;
  image.height = static_cast<int>(png_get_image_height(png, info));
  image.width = static_cast<int>(png_get_image_width(png, info));
  if (int64_t{image.height} * image.width > MostPixels(task.bytes)) return false;
  image.channels = ChoosePngChannels(png, info, task.channels);
  const int passes = png_set_interlace_handling(png);
  png_read_update_info(png, info);
  const size_t row = static_cast<size_t>(image.width) * static_cast<size_t>(image.channels);
  if (png_get_rowbytes(png, info) != row) png_error(png, "its pixels are of no known kind");
  image.pixels.resize(row * static_cast<size_t>(image.height));
  for (int pass = 0; pass < passes; ++pass) {
    for (size_t y = 0; y < static_cast<size_t>(image.height); ++y) {
      png_read_row(png, image.pixels.data() + row * y, nullptr);
    }
  }
  return true;
}

/// Converts red, green and blue to grey with Pillow's weights and rounding.
void ConvertToGrey(Image& image) {
  uint8_t* to = image.pixels.data();
  for (size_t at = 0; at + 3 <= image.pixels.size(); at += 3) {
    const uint8_t* from = image.pixels.data() + at;
    *to++ =
        static_cast<uint8_t>((19595 * from[0] + 38470 * from[1] + 7471 * from[2] + 0x8000) >> 16);
  }
  image.pixels.resize(static_cast<size_t>(to - image.pixels.data()));
  image.channels = 1;
}

Image DecodePng(std::string_view bytes, int channels, const std::string& path) {
  CheckPngParts(bytes, path);
  Image image;
  PngTask task = {bytes, 0, channels, &image};
  PngErrors errors;
  png_structp png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &errors, LeavePng, IgnoreWarning);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  if (!info) png_destroy_read_struct(&png, nullptr, nullptr);
  if (!info) Refuse(path, "no memory to read it");
  volatile bool fits = true;
  if (setjmp(errors.leave) == 0) fits = ReadPng(png, info, task);
  png_destroy_read_struct(&png, &info, nullptr);
  if (errors.text[0] != '\0') Refuse(path, Str("no whole PNG: ", errors.text));
  if (!fits) RefuseSize(image.width, image.height, bytes, path);
  if (image.channels != channels) ConvertToGrey(image);
  return image;
}

}  // namespace

Image DecodeImage(std::string_view bytes, int channels, int least, const std::string& path) {
  if (bytes.starts_with("\xff\xd8\xff")) return DecodeJpeg(bytes, channels, least, path);
  if (bytes.starts_with("\x89PNG\r\n\x1a\n")) return DecodePng(bytes, channels, path);
  Refuse(path, Str("expected a JPEG or PNG, got ", bytes.size(), " bytes that begin otherwise"));
}

void ResizeToPlanes(const Image& image, int height, int width, bool crop, float* out) {
  float rows = static_cast<float>(image.height), columns = static_cast<float>(image.width);
  if (crop) {
    const float scale =
        std::min(rows / static_cast<float>(height), columns / static_cast<float>(width));
    rows = scale * static_cast<float>(height);
    columns = scale * static_cast<float>(width);
  }
  const float top = (static_cast<float>(image.height) - rows) / 2;
  const float left = (static_cast<float>(image.width) - columns) / 2;
  const Taps down(image.height, top, rows, height), across(image.width, left, columns, width);
  std::vector<float> plane(static_cast<size_t>(image.height) * static_cast<size_t>(image.width));
  for (int channel = 0; channel < image.channels; ++channel) {
    const uint8_t* from = image.pixels.data() + channel;
    for (float& value : plane) {
      value = static_cast<float>(*from) / 255;
      from += image.channels;
    }
    Resample(plane.data(), down, across, out);
    out += static_cast<ptrdiff_t>(height) * width;
  }
}

}  // namespace strata::data
