// What reads files, lists and messages that others wrote. Each may refuse its bytes
// by an Error; it never crashes, hangs, or takes memory that the bytes do not justify.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace strata::fuzz {

struct Reader {
  const char* name;
  /// Reads all that the bytes hold. Throws what the reader throws.
  void (*read)(std::string_view bytes);
};

std::span<const Reader> Readers();
/// Null when there is none of this name.
const Reader* FindReader(std::string_view name);

/// Whether the reader takes the bytes, or refuses them by an Error, whose text goes to `why`.
/// Anything else that it throws passes through.
bool Takes(const Reader& reader, std::string_view bytes, std::string* why = nullptr);

}  // namespace strata::fuzz
