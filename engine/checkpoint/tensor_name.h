// Names of tensors in files.
#pragma once

#include <string>
#include <string_view>

namespace strata {

/// Why this cannot be the name of a tensor in a file, or "": empty or longer than 1,000 bytes, not
/// UTF-8, control characters, the format's own "__metadata__". Names are never used as paths.
std::string TroubleWithTensorName(std::string_view name);

/// The name between quotes, whatever is in it, for messages.
std::string QuotedName(std::string_view name);

}  // namespace strata
