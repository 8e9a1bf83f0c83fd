// Recognises a file by its beginning, because a killed training may have left an incomplete last
// line.
#include "launcher/report/output_files.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <string_view>
#include <system_error>

#include "engine/base/error.h"
#include "engine/base/text.h"

namespace strata::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostBytes = 64;

struct Kind {
  const char* flag;
  const char* name;
  std::string_view begins;            ///< at most kMostBytes
  std::string_view earlier = begins;  ///< the beginning of files from older versions
};

constexpr Kind kKinds[] = {
    {"log", "log of a training", "{\"step\":", "{\"version\":1,\"step\":"},
    {"csv", "table of a training", "step,loss,grad_norm,"},
    {"prometheus", "file of a training's numbers", "# HELP strata_steps_done "},
    {"trace", "trace", "{\"displayTimeUnit\":\"ms\",\n\"otherData\":{\"strata_trace\":"},
    {"svg", "drawing of a plan", "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 "},
    {"html", "page of a plan", "\n<!doctype html>\n"},
    {"write_costs", "file of costs", "{\n \"costs\":"},
    {"output", "file of links", "{\n \"links\":"},  // of doctor --links
};

std::string BeginOf(const std::string& path) {
  std::string begin(kMostBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(begin.data(), static_cast<std::streamsize>(begin.size()));
  begin.resize(static_cast<size_t>(file.gcount()));
  return begin;
}

/// True if the text begins with `begins`. An empty file fits, and so does a part of `begins`.
bool Fits(std::string_view text, std::string_view begins) {
  const size_t size = std::min(text.size(), begins.size());
  return text.substr(0, size) == begins.substr(0, size);
}

/// True if the path is a regular file, or does not exist. False for descriptors that the shell has
/// opened, because overwriting those is intended.
bool IsFile(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  const bool is_descriptor = path.starts_with("/dev/std") || path.starts_with("/dev/fd/");
  return !is_descriptor && (fs::is_regular_file(status) || !fs::exists(status));
}

std::string PlaceOf(const std::string& path) {
  std::error_code error;
  return fs::weakly_canonical(fs::absolute(path, error), error).string();
}

}  // namespace

void CheckOutputs(const Value& flags) {
  std::map<std::string, std::string> flag_at;
  for (const Kind& kind : kKinds) {
    const Value& value = flags[kind.flag];
    if (!value.is_string() || value.as_string().empty() || !IsFile(value.as_string())) continue;
    const std::string& path = value.as_string();
    const std::string flag = Str("--", kind.flag, "=", path);
    const auto [other, is_alone] = flag_at.emplace(PlaceOf(path), flag);
    if (!is_alone) {
      throw ConfigError(Str(other->second, " and ", flag, " name the same file: give two names"));
    }
    const std::string begin = BeginOf(path);
    if (Fits(begin, kind.begins) || Fits(begin, kind.earlier)) continue;
    throw ConfigError(Str(flag, ": this file exists and is no ", kind.name,
                          ": nothing was written; give another name, or remove it"));
  }
}

}  // namespace strata::launcher
