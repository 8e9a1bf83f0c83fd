#include "engine/data/files/inflate.h"

#include <zlib.h>

#include <algorithm>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::data {
namespace {

constexpr int kGzip = 15 + 16;  // the largest window, with gzip's header
constexpr int kRaw = -15;       // the largest window, without any header

/// zlib's inflate stream; the destructor closes it.
class Stream {
 public:
  Stream(std::string_view bytes, int window, size_t piece) : piece_(piece) {
    stream_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
    left_ = bytes.size();
    if (inflateInit2(&stream_, window) != Z_OK) throw WorldError("zlib cannot start");
  }
  ~Stream() { inflateEnd(&stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  /// Inflates up to `count` bytes and returns how many it wrote, which may be fewer at any time. 0
  /// at the end of the stream, or if the data is broken.
  size_t Read(char* to, size_t count) {
    const size_t most = std::min(count, piece_);
    stream_.next_out = reinterpret_cast<Bytef*>(to);
    stream_.avail_out = static_cast<uInt>(most);
    do {
      Feed();
      status_ = inflate(&stream_, Z_NO_FLUSH);
    } while (status_ == Z_OK && stream_.avail_out == most && (left_ > 0 || stream_.avail_in > 0));
    return most - stream_.avail_out;
  }
  bool has_ended() const { return status_ == Z_STREAM_END; }
  bool has_input() const { return left_ > 0 || stream_.avail_in > 0; }
  void NextMember() { inflateReset(&stream_); }

 private:
  void Feed() {
    if (stream_.avail_in > 0) return;
    stream_.avail_in = static_cast<uInt>(std::min(left_, piece_));
    left_ -= stream_.avail_in;
  }

  const size_t piece_;
  z_stream stream_{};
  size_t left_ = 0;  // bytes that zlib has not been given yet
  int status_ = Z_OK;
};

}  // namespace

bool IsGzip(std::string_view bytes) { return bytes.starts_with("\x1f\x8b"); }

std::string InflateGzip(std::string_view bytes, const std::string& path, size_t most,
                        size_t piece) {
  Stream stream(bytes, kGzip, piece);
  std::string content;
  size_t size = 0;
  for (;;) {
    // Memory grows with the data that is really there, whatever size the file claims.
    content.resize(std::max<size_t>(1 << 16, 2 * size));
    const size_t more = stream.Read(content.data() + size, content.size() - size);
    size += more;
    if (size > most) {
      throw WorldError(Str(path, ": expected at most ", FormatBytes(static_cast<double>(most)),
                           " of inflated bytes, got more"));
    }
    if (stream.has_ended()) {
      if (!stream.has_input()) break;
      stream.NextMember();
    } else if (more == 0) {
      throw WorldError(
          Str(path, ": the gzip data is broken or cut off behind byte ", size, " of its content"));
    }
  }
  content.resize(size);
  return content;
}

std::string InflateRaw(std::string_view bytes, const std::string& path, size_t size) {
  // Deflate produces at most 1,032 bytes per byte.
  if (size / 1032 > bytes.size()) {
    throw WorldError(Str(path, ": ", bytes.size(), " compressed bytes cannot hold ", size));
  }
  Stream stream(bytes, kRaw, kInflatePiece);
  std::string content(size + 1, '\0');
  size_t got = 0;
  while (got < content.size()) {
    const size_t more = stream.Read(content.data() + got, content.size() - got);
    got += more;
    if (more == 0 || stream.has_ended()) break;
  }
  if (got != size || !stream.has_ended()) {
    throw WorldError(Str(path, ": the compressed data is broken or cut off"));
  }
  content.resize(size);
  return content;
}

}  // namespace strata::data
