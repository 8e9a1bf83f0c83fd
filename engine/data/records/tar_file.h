// Reads tars: ustar, pax and GNU's long names.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace strata::data {

/// A regular file in a tar.
struct TarMember {
  std::string name;
  int64_t offset = 0;  ///< of its content in the tar
  int64_t size = 0;
};

/// Calls `body` for each regular file, in the order of the tar. Throws WorldError with the path and
/// the offset for a broken tar, one that is cut off, and for links and other members that have no
/// content of their own.
void ForEachTarMember(std::string_view tar, const std::string& path,
                      const std::function<void(const TarMember& member)>& body);

}  // namespace strata::data
