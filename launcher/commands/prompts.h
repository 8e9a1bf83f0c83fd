// Splits the text of a prompts file into prompts, one per line.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace strata::launcher {

/// Lines end in \n or \r\n; empty lines are left out.
std::vector<std::string> PromptsIn(std::string_view text);

}  // namespace strata::launcher
