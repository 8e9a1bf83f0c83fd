// A thousand broken files of each kind. Each must give an error that names the file, and none may
// crash.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "engine/data/testing.h"
#include "engine/data/testing_sources.h"

namespace strata {
namespace {

constexpr int kFiles = 1000;

class BrokenMany : public DatasetTest {
 protected:
  /// Opens the data and reads all samples; returns the error, or "".
  std::string ErrorOfReading(const Value& source) {
    return strata::ErrorOf([&] {
      const auto dataset = OpenDataset(SpecOf(source, context_), context_);
      for (int64_t i = 0; i < dataset->size(); ++i) BytesOfSample(*dataset, i);
    });
  }
  std::mt19937 random_{5};
  size_t Below(size_t count) { return random_() % count; }
};

/// Images that are cut off, have a bit flipped in the header, are empty or of another type, or
/// contain zero bytes.
TEST_F(BrokenMany, ImagesAreNamed) {
  const std::vector<std::string> whole = {Content(TestData("picture.png")),
                                          Content(TestData("picture.jpg")),
                                          Content(TestData("palette.png"))};
  const Value source =
      MakeDataSource("image_folder", {}, {{"path", folder_.string()}, {"size", 8}}, "net.lua:1");
  for (int i = 0; i < kFiles; ++i) {
    std::string content = whole[Below(3)];
    const bool is_png = content[0] != '\xff';
    switch (Below(5)) {
      case 0:
        content.resize(Below(content.size()));
        break;
      case 1:  // the magic bytes; of a PNG also the size, which has a checksum
        content[Below(is_png ? 24 : 3)] ^= 0x40;
        break;
      case 2:
        content.clear();
        break;
      case 3:
        content = std::string(1 + Below(300), static_cast<char>(Below(255)));
        break;
      default:
        // The zeros go into JPEG's first Huffman table or into PNG's pixels; both are checked.
        const size_t at = is_png ? content.size() - 40 : content.find("\xff\xc4") + 5;
        for (size_t k = 0; k < 20; ++k) content[at + k] = 0;
    }
    const std::string path = Write("class/image.png", content);
    EXPECT_THAT(ErrorOfReading(source), testing::StartsWith(path + ": ")) << i;
  }
}

/// Tables with a cell too many or too few, a word among numbers, an unclosed quote, or a zero byte.
TEST_F(BrokenMany, TablesAreNamedWithTheirLine) {
  for (int i = 0; i < kFiles; ++i) {
    std::vector<std::vector<std::string>> rows;
    const size_t count = 3 + Below(20), width = 2 + Below(5);
    for (size_t row = 0; row < count; ++row) {
      rows.emplace_back();
      for (size_t cell = 0; cell < width; ++cell) rows.back().push_back(Str(Below(1000)));
    }
    const size_t row = Below(count), cell = Below(width);
    const std::string wrong[] = {"",       "x1", "1,2", "\"1", "1\n2", std::string(1, '\0'),
                                 "\"1\"2", "inf"};
    rows[row][cell] = wrong[Below(8)];
    if (Below(9) == 0 && rows[row][cell] != "1,2") rows[row].pop_back();
    if (rows[row].size() == width - 1 && rows[row] == std::vector<std::string>(width - 1, ""))
      continue;
    std::string text;
    for (size_t k = 0; k < width; ++k) text += Str(k ? "," : "", "c", k);
    for (const auto& line : rows) text += "\n" + Join(line, ",");
    const std::string path = Write("a.csv", text);
    EXPECT_THAT(ErrorOfReading(MakeDataSource("csv", {path}, {}, "net.lua:1")),
                testing::StartsWith(path + ":"))
        << i << text;
  }
}

TEST_F(BrokenMany, ArraysAreNamed) {
  const std::vector<std::string> whole = {Content(TestData("floats.npy")),
                                          Content(TestData("stored.npz")),
                                          Content(TestData("deflated.npz"))};
  for (int i = 0; i < kFiles; ++i) {
    std::string content = whole[Below(3)];
    switch (Below(4)) {
      case 0:
        content.resize(Below(content.size()));
        break;
      case 1:
        content[Below(4)] ^= 0x20;
        break;
      case 2:
        content = std::string(Below(50), static_cast<char>(Below(255)));
        break;
      default:
        content += "x";  // bytes behind the end
        if (content.starts_with("PK")) content.resize(content.size() - 30);
    }
    const std::string path = Write("a.npy", content);
    EXPECT_THAT(ErrorOfReading(MakeDataSource("npy", {path}, {}, "net.lua:1")),
                testing::HasSubstr(path))
        << i;
  }
}

TEST_F(BrokenMany, JsonLinesAreNamedWithTheirLine) {
  const std::string wrong[] = {"{",
                               "[1]",
                               "{\"text\": 3}",
                               "{}",
                               "\"a\"",
                               "{\"text\": \"\xff\"}",
                               "nul",
                               "{\"text\": \"a\"} x",
                               "{\"text\": \"a\", \"text\": \"b\"}"};
  for (int i = 0; i < kFiles; ++i) {
    std::string text;
    const size_t count = 1 + Below(10), place = Below(count);
    for (size_t line = 0; line < count; ++line) {
      text += (line == place ? wrong[Below(9)] : "{\"text\": \"some words\"}") + "\n";
    }
    const std::string path = Write("a.jsonl", text);
    EXPECT_THAT(ErrorOfReading(MakeDataSource("jsonl", {path}, {{"length", 2}}, "net.lua:1")),
                testing::StartsWith(Str(path, ":", place + 1)))
        << i << text;
  }
}

/// With broken="skip" a whole image is read in the place of each broken one.
TEST_F(BrokenMany, SkippedImagesAreReplaced) {
  Write("a/1.png", "no image");
  Write("a/2.png", Content(TestData("picture.png")));
  Write("b/1.png", Content(TestData("picture.png")).substr(0, 100));
  const auto open = [&] {
    return Open(
        "image_folder",
        Options({{"path", folder_.string()}, {"size", 8}, {"channels", 3}, {"broken", "skip"}}));
  };
  const auto images = open();
  EXPECT_EQ(images->size(), 3);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(Ints(*images, i, true)[0], 0) << "the label goes along with the image";
    EXPECT_EQ(BytesOfSample(*images, i), BytesOfSample(*images, 1));
  }
  std::filesystem::remove(folder_ / "a/2.png");
  EXPECT_THAT(strata::ErrorOf([&] { BytesOfSample(*open(), 0); }),
              testing::HasSubstr("none of the 2 images is whole"));
}

}  // namespace
}  // namespace strata
