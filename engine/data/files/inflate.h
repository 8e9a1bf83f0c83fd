// Decompresses data that zlib compressed: .gz files, and members of .npz files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata::data {

/// zlib counts bytes in 32 bits, so it gets and returns at most this many bytes at a time.
inline constexpr size_t kInflatePiece = size_t{1} << 30;

/// True for the first bytes of a .gz file.
bool IsGzip(std::string_view bytes);
/// The content of a .gz file with all its members. Throws WorldError that begins with `path` for
/// data that is cut off or broken, and for more than `most` bytes of content. `piece` is smaller in
/// tests (at least 1).
std::string InflateGzip(std::string_view bytes, const std::string& path, size_t most,
                        size_t piece = kInflatePiece);
/// The content of a raw deflate stream, which must be exactly `size` bytes. Throws as InflateGzip()
/// does.
std::string InflateRaw(std::string_view bytes, const std::string& path, size_t size);

}  // namespace strata::data
