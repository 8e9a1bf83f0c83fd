#include "engine/data/sources.h"

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/file.h"

namespace strata::data {

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

std::string TokenizerPath(const Value& option, const DatasetContext& context) {
  return option.is_null() ? "" : ResolvePath(option.as_string(), context);
}

std::unique_ptr<Tokenizer> OpenTokenizer(const Value& option, const DatasetContext& context) {
  if (option.is_null()) return MakeByteTokenizer();
  return ReadTokenizer(TokenizerPath(option, context));
}

std::string ReadFile(const std::string& path, const std::string& expected) {
  const InputFile file(path, expected);
  std::string content(static_cast<size_t>(file.size()), '\0');
  file.ReadAt(0, content.data(), file.size());
  return content;
}

int64_t SplitSize(int64_t total, int64_t k, bool train) {
  return train ? total - total / k : total / k;
}

int64_t SplitPlace(int64_t index, int64_t k, bool train) {
  return train ? index + index / (k - 1) : index * k + k - 1;
}

}  // namespace strata::data
