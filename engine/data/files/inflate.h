// What zlib compressed: .gz files, and members of .npz files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace strata::data {

/// zlib counts bytes in 32 bits: it is given, and gives, at most as many at a time.
inline constexpr size_t kInflatePiece = size_t{1} << 30;

/// True for the first bytes of a .gz file.
bool IsGzip(std::string_view bytes);
/// The content of a .gz file, of all its members. Throws WorldError that begins with `path` for
/// what is cut off or broken, and for more than `most` bytes. `piece`: for tests, from 1 on.
std::string InflateGzip(std::string_view bytes, const std::string& path, size_t most,
                        size_t piece = kInflatePiece);
/// The content of a bare deflate stream of `size` bytes once it is inflated. Throws likewise.
std::string InflateRaw(std::string_view bytes, const std::string& path, size_t size);

}  // namespace strata::data
