#include "engine/cost/measured_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata {

Value ReadMeasuredFile(const std::string& key, const std::string& path) {
  std::error_code error;
  std::ifstream file;
  // Only regular files are opened: opening a folder succeeds, a pipe waits for its writer, and a
  // device may have no end.
  if (std::filesystem::is_regular_file(path, error)) file.open(path);
  if (!file.is_open()) throw ConfigError(Str(key, ": cannot read the file ", path));
  const std::string text(std::istreambuf_iterator<char>(file), {});
  if (text.empty()) throw ConfigError(Str(key, ": the file ", path, " is empty"));
  try {
    return Value::FromJson(text);
  } catch (const ConfigError& malformed) {
    throw ConfigError(Str(key, ": ", path, ": ", malformed.what()));
  }
}

}  // namespace strata
