// Names of tensors in files: which names are allowed, and how messages show them.
#pragma once

#include <string>
#include <string_view>

namespace strata {

/// Returns "" if this can be the name of a tensor in a file, otherwise the reason why not. Refused
/// are: an empty name, more than 1,000 bytes, bytes that are not UTF-8, control characters, and the
/// format's own "__metadata__". Names are never used as paths.
std::string TroubleWithTensorName(std::string_view name);

/// The name in quotes, for messages. If it is not a valid name, it is cut off and unusual
/// characters are escaped.
std::string QuotedName(std::string_view name);

}  // namespace strata
