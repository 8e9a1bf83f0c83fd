#include "launcher/commands/prompts.h"

#include "engine/base/text.h"

namespace strata::launcher {

std::vector<std::string> PromptsIn(std::string_view text) {
  std::vector<std::string> prompts;
  for (std::string& line : Split(text, '\n')) {
    if (line.ends_with('\r')) line.pop_back();
    if (!line.empty()) prompts.push_back(std::move(line));
  }
  return prompts;
}

}  // namespace strata::launcher
