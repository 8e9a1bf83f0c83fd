// Tests the content of .gz files for all sizes of pieces that zlib gets and returns.
#include "engine/data/files/inflate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "engine/base/testing.h"
#include "engine/base/text.h"

namespace strata {
namespace {

using testing::HasSubstr;

constexpr size_t kMost = 1 << 20;

std::string Gzip(const std::string& content) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string bytes(deflateBound(&stream, content.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(bytes.data());
  stream.avail_out = static_cast<uInt>(bytes.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  bytes.resize(stream.total_out);
  deflateEnd(&stream);
  return bytes;
}

std::string Content() {
  std::string content;
  for (int i = 0; i < 2000; ++i) content += Str(i * i % 997, ",");
  return content;
}

TEST(Inflate, PiecesMayEndAnywhere) {
  const std::string content = Content(), bytes = Gzip(content);
  for (const size_t piece : {size_t{1}, size_t{13}, size_t{1000}, data::kInflatePiece}) {
    EXPECT_EQ(data::InflateGzip(bytes, "a.gz", kMost, piece), content) << piece;
    EXPECT_EQ(data::InflateGzip(bytes + Gzip("") + bytes, "a.gz", kMost, piece), content + content)
        << "of several members, pieces of " << piece;
  }
}

TEST(Inflate, WhatIsCutOffIsRefusedWhereverPiecesEnd) {
  const std::string bytes = Gzip(Content());
  for (const size_t piece : {size_t{1}, size_t{13}, data::kInflatePiece}) {
    for (const size_t size : {size_t{0}, size_t{5}, bytes.size() / 2, bytes.size() - 1}) {
      EXPECT_THAT(ErrorOf([&] { data::InflateGzip(bytes.substr(0, size), "a.gz", kMost, piece); }),
                  HasSubstr("a.gz: the gzip data is broken or cut off"));
    }
    std::string wrong = bytes;
    wrong[wrong.size() - 6] ^= 1;  // a byte of the checksum
    EXPECT_THAT(ErrorOf([&] { data::InflateGzip(wrong, "a.gz", kMost, piece); }),
                HasSubstr("is broken or cut off"));
    EXPECT_THAT(ErrorOf([&] { data::InflateGzip(bytes, "a.gz", 5000, piece); }),
                HasSubstr("of inflated bytes, got more"));
  }
}

}  // namespace
}  // namespace strata
