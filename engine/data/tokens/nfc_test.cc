// Compares with Python's unicodedata, whose digests make_nfc_digests.py prints.
#include "engine/data/tokens/nfc.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "engine/data/tokens/utf8.h"

namespace strata::data {
namespace {

constexpr char32_t kCodes = 0x110000;

bool IsSurrogate(char32_t c) { return c >= 0xd800 && c < 0xe000; }

std::string TextOf(std::u32string_view codes) {
  std::string text;
  for (const char32_t c : codes) AppendUtf8(c, text);
  return text;
}

/// FNV-1a over texts, one per line.
class LinesDigest {
 public:
  void Add(const std::string& text) {
    for (const char c : text) Take(c);
    Take('\n');
  }
  uint64_t value() const { return value_; }

 private:
  void Take(char c) { value_ = (value_ ^ static_cast<uint8_t>(c)) * 0x100000001b3; }
  uint64_t value_ = 0xcbf29ce484222325;
};

TEST(Nfc, OfEachCharacterIsPythons) {
  LinesDigest digest;
  for (char32_t c = 0; c < kCodes; ++c) {
    if (IsSurrogate(c)) continue;
    const std::string text = TextOf({&c, 1}), normal = ToNfc(text);
    digest.Add(normal);
    ASSERT_EQ(ToNfc(normal), normal) << static_cast<uint32_t>(c);
    if (IsPlainNfc(text)) {
      ASSERT_EQ(normal, text) << static_cast<uint32_t>(c);
    }
  }
  EXPECT_EQ(digest.value(), 0x3ce40516aab8cae9u);
}

/// Uses the same random texts as the script: of characters that combine, compose and decompose.
TEST(Nfc, OfDrawnTextsIsPythons) {
  constexpr char32_t kBlocks[][2] = {
      {0x41, 0x7a},       {0xc0, 0x17f},     {0x300, 0x36f},   {0x591, 0x5ea},   {0x61f, 0x670},
      {0x900, 0x9ff},     {0xdca, 0xddf},    {0xf40, 0xfbc},   {0x1100, 0x11ff}, {0x1e00, 0x1fff},
      {0x212a, 0x212b},   {0x3040, 0x30ff},  {0xac00, 0xac7f}, {0xfb1d, 0xfb4e}, {0x11080, 0x110ba},
      {0x1d157, 0x1d172}, {0x2f800, 0x2f8ff}};
  std::vector<char32_t> codes;
  for (const auto& [first, last] : kBlocks) {
    for (char32_t c = first; c <= last; ++c) codes.push_back(c);
  }
  LinesDigest digest;
  uint64_t state = 1;
  for (int i = 0; i < 100'000; ++i) {
    std::u32string text;
    for (int k = 0; k < 8; ++k) {
      state = state * 6364136223846793005 + 1442695040888963407;
      text += codes[(state >> 33) % codes.size()];
    }
    digest.Add(ToNfc(TextOf(text)));
  }
  EXPECT_EQ(digest.value(), 0xf9c2b555be5b34aau);
}

/// Sorting this run by swaps of neighbours takes hours.
TEST(Nfc, SortsALongRunOfMarks) {
  const auto marks = [](char32_t mark, size_t count) {
    return TextOf(std::u32string(count, mark));
  };
  constexpr size_t kCount = 1 << 20;
  EXPECT_EQ(ToNfc("a" + marks(0x301, kCount) + marks(0x323, kCount)),
            TextOf(U"\u1ea1") + marks(0x323, kCount - 1) + marks(0x301, kCount));
}

TEST(Nfc, KeepsWhatIsNotUtf8) {
  EXPECT_EQ(ToNfc("e\xcc\x81"), "\xc3\xa9");
  EXPECT_EQ(ToNfc("e\xff\xcc\x81"), "e\xff\xcc\x81") << "nothing joins across it";
  EXPECT_EQ(ToNfc("\xcc"), "\xcc");
  EXPECT_EQ(ToNfc("\xed\xa0\x80z"), "\xed\xa0\x80z") << "a surrogate";
  EXPECT_EQ(ToNfc(""), "");
}

}  // namespace
}  // namespace strata::data
