// Images as Pillow reads and resizes them (testdata/make_data.py).
#include "engine/data/files/image_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "engine/base/testing.h"
#include "engine/data/files/array_file.h"
#include "engine/data/testing_sources.h"

namespace strata::data {
namespace {

using testing::HasSubstr;

std::string Content(const std::string& name) {
  std::ifstream file(TestData(name), std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Image Decode(const std::string& name, int channels = 3, int least = 0) {
  return DecodeImage(Content(name), channels, least, name);
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

/// Files that are cut off anywhere are errors with their name.
TEST(DecodeImage, FilesThatAreCutOffAreNamed) {
  for (const char* name : {"picture.png", "picture.jpg", "grey.jpg", "palette.png"}) {
    const std::string whole = Content(name);
    for (size_t size = 0; size < whole.size(); ++size) {
      EXPECT_THAT(ErrorOf([&] { DecodeImage(whole.substr(0, size), 3, 0, name); }),
                  HasSubstr(std::string(name) + ": "))
          << size;
    }
  }
}

/// libpng alone takes files whose last sums are wrong.
TEST(DecodeImage, APngWithAnyBitWrongIsNamed) {
  for (const char* name : {"picture.png", "palette.png"}) {
    const std::string whole = Content(name);
    for (size_t at = 0; at < whole.size(); ++at) {
      std::string wrong = whole;
      wrong[at] ^= 0x40;
      EXPECT_THAT(ErrorOf([&] { DecodeImage(wrong, 3, 0, name); }),
                  HasSubstr(std::string(name) + ": "))
          << at;
    }
  }
}

/// A header may ask for a GB that the file cannot hold.
TEST(DecodeImage, SizesThatCannotBeAreRefused) {
  const auto expect_refused = [](std::string content, size_t at, std::string_view header) {
    content.replace(at, header.size(), header);
    EXPECT_THAT(ErrorOf([&] { DecodeImage(content, 3, 0, "a"); }),
                HasSubstr("a: an image of 15616x12288 pixels is not read from "));
  };
  const std::string jpeg = Content("picture.jpg");
  expect_refused(jpeg, jpeg.find("\xff\xc0") + 5, {"\x30\0\x3d\0", 4});
  // Width, height, five bytes of the kind, and the sum of the part.
  expect_refused(Content("picture.png"), 16,
                 {"\0\0\x3d\0\0\0\x30\0\x08\x02\0\0\0\xff\x74\x48\x0c", 17});
}

TEST(DecodeImage, OtherBytesAreNamed) {
  EXPECT_THAT(ErrorOf([] { DecodeImage("GIF89a", 3, 0, "a.png"); }),
              HasSubstr("a.png: expected a JPEG or PNG, got 6 bytes"));
}

}  // namespace
}  // namespace strata::data
