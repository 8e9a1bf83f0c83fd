// Compares decoded and resized images with Pillow's (testdata/make_data.py).
#include "engine/data/files/image_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "engine/base/testing.h"
#include "engine/data/files/array_file.h"
#include "engine/data/testing_sources.h"

namespace strata::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Image Decode(const std::string& name, int channels = 3, int least = 0) {
  return DecodeImage(Content(TestData(name)), channels, least, name);
}

int MostApart(const std::vector<uint8_t>& pixels, const std::string& npy) {
  const Array expected = ReadArray(TestData(npy));
  EXPECT_EQ(expected.spec.bytes(), static_cast<int64_t>(pixels.size()));
  int most = 0;
  for (size_t i = 0; i < pixels.size(); ++i) {
    most = std::max(most, std::abs(pixels[i] - static_cast<int>(expected.bytes[i])));
  }
  return most;
}

TEST(DecodeImage, GivesPillowsPixels) {
  EXPECT_EQ(MostApart(Decode("picture.png").pixels, "picture_png.npy"), 0);
  EXPECT_LE(MostApart(Decode("picture.jpg").pixels, "picture_jpg.npy"), 1);
  const Image grey = Decode("grey.jpg");
  EXPECT_EQ(grey.channels, 3);
  EXPECT_EQ(grey.pixels[0], grey.pixels[1]);
  EXPECT_EQ(Decode("picture.png", 1).pixels.size(), size_t{48 * 64});
}

TEST(DecodeImage, ReadsInksAndPalettes) {
  const Image inks = Decode("cmyk.jpg"), whole = Decode("picture.png");
  ASSERT_EQ(inks.pixels.size(), whole.pixels.size());
  int64_t apart = 0;
  for (size_t i = 0; i < inks.pixels.size(); ++i) {
    apart += std::abs(inks.pixels[i] - whole.pixels[i]);
  }
  EXPECT_LT(apart / static_cast<int64_t>(inks.pixels.size()), 20) << "inverted, it would be 100";
  EXPECT_EQ(Decode("cmyk.jpg", 1).pixels.size(), size_t{48 * 64});
  EXPECT_EQ(Decode("palette.png").pixels.size(), whole.pixels.size());
}

TEST(DecodeImage, AJpegComesSmallerWhereThatIsEnough) {
  const Image whole = Decode("picture.jpg", 3, 25), half = Decode("picture.jpg", 3, 24);
  EXPECT_EQ(whole.height, 48);
  EXPECT_EQ(half.height, 24);
  EXPECT_EQ(half.width, 32);
}

TEST(ResizeToPlanes, GivesPillowsPixels) {
  const Image image = Decode("picture.png");
  struct Case {
    int height, width;
    bool crop;
    const char* npy;
  };
  for (const Case& c :
       {Case{20, 20, true, "picture_20.npy"}, Case{60, 80, false, "picture_80.npy"}}) {
    std::vector<float> planes(static_cast<size_t>(3 * c.height * c.width));
    ResizeToPlanes(image, c.height, c.width, c.crop, planes.data());
    std::vector<uint8_t> rounded;
    for (const float value : planes) rounded.push_back(static_cast<uint8_t>(value * 255 + 0.5f));
    EXPECT_LE(MostApart(rounded, c.npy), 1) << c.npy;
  }
}

// ---- PNGs of all kinds ----

std::string Big(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(number >> shift);
  return bytes;
}

std::string PngPart(const std::string& name, const std::string& content) {
  const std::string part = name + content;
  const uLong sum =
      crc32(0, reinterpret_cast<const Bytef*>(part.data()), static_cast<uInt>(part.size()));
  return Big(static_cast<uint32_t>(content.size())) + part + Big(static_cast<uint32_t>(sum));
}

/// A PNG of one row. `more` are chunks before its pixels.
struct Row {
  int width;
  char bits;
  char kind;
  std::string pixels;
  std::string more = "";
  bool is_interlaced = false;
};

std::string PngOf(const Row& row) {
  const std::string plain = '\0' + row.pixels;
  std::string packed(compressBound(plain.size()), '\0');
  uLongf size = packed.size();
  compress(reinterpret_cast<Bytef*>(packed.data()), &size,
           reinterpret_cast<const Bytef*>(plain.data()), plain.size());
  packed.resize(size);
  const std::string header = Big(static_cast<uint32_t>(row.width)) + Big(1) + row.bits + row.kind +
                             std::string("\0\0", 2) + static_cast<char>(row.is_interlaced);
  return "\x89PNG\r\n\x1a\n" + PngPart("IHDR", header) + row.more + PngPart("IDAT", packed) +
         PngPart("IEND", "");
}

std::vector<int> PixelsOf(const Row& row, int channels = 3) {
  const Image image = DecodeImage(PngOf(row), channels, 0, "a.png");
  EXPECT_EQ(image.channels, channels);
  EXPECT_EQ(image.width, row.width);
  return {image.pixels.begin(), image.pixels.end()};
}

constexpr char kGrey = 0, kColour = 2, kPalette = 3, kGreyAlpha = 4, kColourAlpha = 6;

TEST(DecodeImage, SixteenBitsBecomeTheirUpperEight) {
  const std::string two("\x11\xff\x80\x7f", 4), six("\x11\0\x22\xff\xc8\x80", 6);
  EXPECT_THAT(PixelsOf({2, 16, kGrey, two}, 1), ElementsAre(17, 128));
  EXPECT_THAT(PixelsOf({2, 16, kGrey, two}), ElementsAre(17, 17, 17, 128, 128, 128));
  EXPECT_THAT(PixelsOf({1, 16, kColour, six}), ElementsAre(17, 34, 200));
  EXPECT_THAT(PixelsOf({1, 16, kColour, six}, 1), ElementsAre(48));
  EXPECT_THAT(PixelsOf({1, 16, kGreyAlpha, two}), ElementsAre(17, 17, 17));
  EXPECT_THAT(PixelsOf({1, 16, kColourAlpha, six + two.substr(2)}), ElementsAre(17, 34, 200));
}

TEST(DecodeImage, ColourSpacesOfPngsChangeNoPixels) {
  const std::string six("\x11\x22\xc8\x80\x40\x01", 6);
  const std::vector<int> plain = {17, 34, 200, 128, 64, 1};
  for (const uint32_t gamma : {100000u, 45455u, 1u, 0u}) {
    const std::string part = PngPart("gAMA", Big(gamma));
    EXPECT_EQ(PixelsOf({2, 8, kColour, six, part}), plain) << gamma;
    EXPECT_THAT(PixelsOf({1, 8, kColour, six.substr(0, 3), part}, 1), ElementsAre(48)) << gamma;
    EXPECT_THAT(PixelsOf({2, 16, kGrey, "\x11\x22\x80\x40", part}, 1), ElementsAre(17, 128));
  }
  EXPECT_EQ(PixelsOf({2, 8, kColour, six, PngPart("sRGB", std::string(1, '\0'))}), plain);
  EXPECT_EQ(PixelsOf({2, 8, kColour, six, PngPart("iCCP", "no profile")}), plain);
}

TEST(DecodeImage, PngsOfAllKindsAreAsPillowConvertsThem) {
  EXPECT_THAT(PixelsOf({4, 1, kGrey, "\x50"}, 1), ElementsAre(0, 255, 0, 255));
  EXPECT_THAT(PixelsOf({2, 4, kGrey, "\x1f"}, 1), ElementsAre(17, 255));
  EXPECT_THAT(PixelsOf({1, 8, kGrey, "\x64"}), ElementsAre(100, 100, 100));
  EXPECT_THAT(PixelsOf({1, 8, kGreyAlpha, "\x64\x01"}), ElementsAre(100, 100, 100));
  EXPECT_THAT(PixelsOf({1, 8, kGreyAlpha, "\x64\x01"}, 1), ElementsAre(100));
  EXPECT_THAT(PixelsOf({1, 8, kColourAlpha, "\xc8\x64\x32\x01"}), ElementsAre(200, 100, 50));
  EXPECT_THAT(PixelsOf({1, 8, kColourAlpha, "\xc8\x64\x32\x01"}, 1), ElementsAre(124));
  const std::string palette = PngPart("PLTE", "\xc8\x64\x32\x01\x02\x03");
  const std::string transparent = palette + PngPart("tRNS", std::string("\xff\0", 2));
  for (const std::string& more : {palette, transparent}) {
    EXPECT_THAT(PixelsOf({2, 1, kPalette, "\x40", more}), ElementsAre(200, 100, 50, 1, 2, 3));
    EXPECT_THAT(PixelsOf({2, 8, kPalette, std::string("\1\0", 2), more}, 1), ElementsAre(2, 124));
  }
  const std::string key = PngPart("tRNS", std::string("\0\x64", 2));
  EXPECT_THAT(PixelsOf({1, 8, kGrey, "\x64", key}), ElementsAre(100, 100, 100));
  // For one pixel, the first pass of interlacing is the whole row.
  EXPECT_THAT(PixelsOf({1, 8, kColour, "\xc8\x64\x32", "", true}), ElementsAre(200, 100, 50));
}

/// As in torchvision's ImageFolder, the EXIF orientation (here: turn by 90 degrees) is ignored.
TEST(DecodeImage, OrientationInExifIsIgnored) {
  const std::string turned("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0", 26);
  const auto expect_same = [](const std::string& name, size_t at, const std::string& part) {
    std::string content = Content(TestData(name));
    const Image plain = DecodeImage(content, 3, 0, name);
    const Image noted = DecodeImage(content.insert(at, part), 3, 0, name);
    EXPECT_EQ(noted.width, plain.width);
    EXPECT_EQ(noted.height, plain.height);
    EXPECT_EQ(noted.pixels, plain.pixels);
  };
  const std::string header(
      "\xff\xe1\0\x22"
      "Exif\0\0",
      10);  // its size: 34 bytes
  expect_same("picture.jpg", 2, header + turned);
  expect_same("picture.png", 33, PngPart("eXIf", turned));  // behind IHDR
}

/// Files that are cut off anywhere must give an error with their name.
TEST(DecodeImage, FilesThatAreCutOffAreNamed) {
  for (const char* name : {"picture.png", "picture.jpg", "grey.jpg", "palette.png"}) {
    const std::string whole = Content(TestData(name));
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THAT(ErrorOf([&] { DecodeImage(whole.substr(0, size), 3, 0, name); }),
                  HasSubstr(std::string(name) + ": "))
          << size;
    }
  }
}

/// libpng alone would accept files whose last checksums are wrong.
TEST(DecodeImage, APngWithAnyBitWrongIsNamed) {
  for (const char* name : {"picture.png", "palette.png"}) {
    const std::string whole = Content(TestData(name));
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string wrong = whole;
      wrong[at] ^= 0x40;
      EXPECT_THAT(ErrorOf([&] { DecodeImage(wrong, 3, 0, name); }),
                  HasSubstr(std::string(name) + ": "))
          << at;
    }
  }
}

/// A header may announce an image of a GB that the file cannot hold.
TEST(DecodeImage, SizesThatCannotBeAreRefused) {
  const auto expect_refused = [](std::string content, size_t at, std::string_view header) {
    content.replace(at, header.size(), header);
    EXPECT_THAT(ErrorOf([&] { DecodeImage(content, 3, 0, "a"); }),
                HasSubstr("a: an image of 15616x12288 pixels is not read from "));
  };
  const std::string jpeg = Content(TestData("picture.jpg"));
  expect_refused(jpeg, jpeg.find("\xff\xc0") + 5, {"\x30\0\x3d\0", 4});
  // Width, height, five bytes of the format, and the checksum of the chunk.
  expect_refused(Content(TestData("picture.png")), 16,
                 {"\0\0\x3d\0\0\0\x30\0\x08\x02\0\0\0\xff\x74\x48\x0c", 17});
}

TEST(DecodeImage, OtherBytesAreNamed) {
  EXPECT_THAT(ErrorOf([] { DecodeImage("GIF89a", 3, 0, "a.png"); }),
              HasSubstr("a.png: expected a JPEG or PNG, got 6 bytes"));
}

}  // namespace
}  // namespace strata::data
