// The prompts of a file, one a line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

/// Lines end in \n or \r\n; empty ones are left out.
std::vector<std::string> PromptsIn(std::string_view text);

}  // namespace strata::launcher
