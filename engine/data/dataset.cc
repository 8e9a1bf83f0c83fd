#include "engine/data/dataset.h"

#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/sources.h"

namespace strata {
namespace {

struct Source {
  const char* kind;
  std::unique_ptr<Dataset> (*open)(const DataSpec&, const DatasetContext&);
};

constexpr std::array<Source, 5> kSources = {{
    {"digits", data::OpenDigits},
    {"cifar10", data::OpenCifar10},
    {"text", data::OpenText},
    {"images", data::OpenImages},
    {"tokens", data::OpenTokens},
}};

}  // namespace

std::unique_ptr<Dataset> OpenDataset(const DataSpec& spec, const DatasetContext& context) {
  std::vector<std::string> kinds;
  for (const Source& source : kSources) {
    if (spec.kind == source.kind) return source.open(spec, context);
    kinds.push_back(source.kind);
  }
  throw ConfigError(Str("no data source \"", spec.kind, "\"", DidYouMean(spec.kind, kinds)));
}

namespace data {

bool IsTrain(const DataSpec& spec) {
  const Value& split = spec.options["split"];
  if (split.is_null()) return true;
  if (split.as_string() != "train" && split.as_string() != "test") {
    throw ConfigError(Str(spec.kind, ": split is \"train\" or \"test\", got ", split.Describe()));
  }
  return split.as_string() == "train";
}

std::string ResolvePath(const std::string& path, const DatasetContext& context) {
  if (path.empty() || path[0] == '/' || context.script_folder.empty()) return path;
  return context.script_folder + "/" + path;
}

std::string ReadFile(const std::string& path, const std::string& expected) {
  // Only regular files are read: a folder has no bytes, a device may have no end, and opening a
  // pipe would wait for its writer.
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) {
    const std::uintmax_t size = std::filesystem::file_size(path, error);
    std::ifstream file(path, std::ios::binary);
    std::string content(error ? 0 : size, '\0');
    if (!error && file.read(content.data(), static_cast<std::streamsize>(size))) return content;
  }
  throw WorldError(Str("cannot read ", path, " (", expected, ")"));
}

int64_t SplitSize(int64_t total, int64_t k, bool train) {
  return train ? total - total / k : total / k;
}

int64_t SplitPlace(int64_t index, int64_t k, bool train) {
  return train ? index + index / (k - 1) : index * k + k - 1;
}

}  // namespace data
}  // namespace strata
