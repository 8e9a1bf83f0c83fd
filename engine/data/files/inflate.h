// What zlib compressed: .gz files, and members of .npz files.
#pragma once

#include <string>
#include <string_view>

namespace strata::data {

/// True for the first bytes of a .gz file.
bool IsGzip(std::string_view bytes);
/// The content of a .gz file, of all its members. Throws WorldError that begins with `path` for
/// what is cut off or broken, and for more than `most` bytes.
std::string InflateGzip(std::string_view bytes, const std::string& path, size_t most);
/// The content of a bare deflate stream of `size` bytes once it is inflated. Throws likewise.
std::string InflateRaw(std::string_view bytes, const std::string& path, size_t size);

}  // namespace strata::data
