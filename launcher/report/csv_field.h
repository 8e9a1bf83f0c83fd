// A field of a CSV file.
#pragma once

#include <string>

namespace strata::launcher {

/// The text as RFC 4180 has it: within quotes where it holds what separates fields or lines.
inline std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char letter : text) quoted += letter == '"' ? "\"\"" : std::string(1, letter);
  return quoted + "\"";
}

}  // namespace strata::launcher
