#include "engine/checkpoint/files/digest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>

namespace strata {
namespace {

using testing::MatchesRegex;

/// `count` bytes that repeat only after a long period.
std::string Bytes(size_t count) {
  std::string bytes;
  uint32_t state = 1;
  for (size_t i = 0; i < count; ++i) {
    state = state * 1664525 + 1013904223;
    bytes += static_cast<char>(state >> 24);
  }
  return bytes;
}

std::string InPieces(const std::string& bytes, size_t piece) {
  Hasher hasher;
  for (size_t done = 0; done < bytes.size(); done += piece) {
    hasher.Add(bytes.data() + done, std::min(piece, bytes.size() - done));
  }
  return hasher.Digest();
}

// The digests must be those that `xxhsum -H2` prints. If they change, old saves cannot be read.
TEST(DigestTest, IsThatOfXxhsum) {
  EXPECT_EQ(StrongDigest(""), "99aa06d3014798d86001c324468d497f");
}

TEST(DigestTest, Has32Digits) {
  for (const size_t size : {0, 1, 16, 17, 240, 241, 1000}) {
    EXPECT_THAT(StrongDigest(Bytes(size)), MatchesRegex("[0-9a-f]{32}")) << size;
  }
}

TEST(DigestTest, PiecesOfAnyCutGiveTheSame) {
  // XXH3 has separate code for up to 16, 128 and 240 bytes, and for more, in blocks of 1,024.
  for (const size_t size : {1, 16, 17, 128, 129, 240, 241, 1023, 1024, 1025, 5000}) {
    const std::string bytes = Bytes(size), expected = StrongDigest(bytes);
    for (const size_t piece : {1, 3, 64, 255, 256, 257, 1024, 5000}) {
      EXPECT_EQ(InPieces(bytes, piece), expected) << size << " in pieces of " << piece;
    }
    for (size_t cut = 0; cut <= size; cut += 7) {
      Hasher hasher;
      hasher.Add(bytes.data(), cut);
      hasher.Add(nullptr, 0);
      hasher.Add(bytes.data() + cut, size - cut);
      EXPECT_EQ(hasher.Digest(), expected) << size << " cut at " << cut;
    }
  }
}

TEST(DigestTest, EveryFlippedBitChangesIt) {
  for (const size_t size : {1, 3, 8, 16, 100, 200, 300, 1500}) {
    std::string bytes = Bytes(size);
    std::set<std::string> digests = {StrongDigest(bytes)};
    for (size_t bit = 0; bit < 8 * size; ++bit) {
      const auto mask = static_cast<char>(1 << (bit % 8));
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
      digests.insert(StrongDigest(bytes));
      bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
    }
    EXPECT_EQ(digests.size(), 8 * size + 1) << size;
  }
}

TEST(DigestTest, EveryTruncationChangesIt) {
  const std::string bytes = Bytes(1200), zeros(1200, '\0');
  for (const std::string& text : {bytes, zeros}) {
    std::set<std::string> digests;
    for (size_t size = 0; size <= text.size(); ++size) {
      digests.insert(StrongDigest(text.substr(0, size)));
    }
    EXPECT_EQ(digests.size(), text.size() + 1);
  }
}

TEST(DigestTest, OrderCounts) {
  EXPECT_NE(StrongDigest("ab"), StrongDigest("ba"));
  const std::string a = Bytes(1024), b(1024, 'b');
  EXPECT_NE(StrongDigest(a + b), StrongDigest(b + a));
}

TEST(DigestTest, IsOfEverythingSoFar) {
  Hasher hasher;
  const std::string bytes = Bytes(600);
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_EQ(hasher.Digest(), StrongDigest(bytes.substr(0, i)));
    hasher.Add(bytes.data() + i, 1);
  }
  EXPECT_EQ(hasher.Digest(), hasher.Digest());
}

RC_GTEST_PROP(DigestProperty, PiecesOfAnyCutGiveTheSame, ()) {
  const std::string bytes = Bytes(*rc::gen::inRange<size_t>(0, 4000));
  Hasher hasher;
  for (size_t done = 0; done < bytes.size();) {
    const auto count = *rc::gen::inRange<size_t>(1, bytes.size() - done + 1);
    hasher.Add(bytes.data() + done, count);
    done += count;
  }
  RC_ASSERT(hasher.Digest() == StrongDigest(bytes));
}

RC_GTEST_PROP(DigestProperty, OtherBytesHaveAnother, (const std::string& a, const std::string& b)) {
  RC_ASSERT((a == b) == (StrongDigest(a) == StrongDigest(b)));
}

}  // namespace
}  // namespace strata
