// The data source "text": the bytes or tokens of text files, cut into pieces, for predicting the
// next token.
#include "engine/base/text.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/sources.h"
#include "engine/data/token_pieces.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeldOut = 10;                                 // every tenth piece is held out
const char* const kLicenceTexts = "/usr/share/common-licenses";  // exists on every Debian machine

/// The file `path`, or the files of the folder `path`, sorted. Symbolic links in a folder are
/// skipped, since they only repeat a file.
std::vector<std::string> Files(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : fs::directory_iterator(path, error)) {
    if (entry.is_regular_file() && !entry.is_symlink()) files.push_back(entry.path().string());
  }
  if (error) throw WorldError(Str("cannot read the folder ", path, ": ", error.message()));
  if (files.empty()) throw WorldError(Str("no file in the folder ", path));
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::unique_ptr<Dataset> OpenText(const DataSpec& spec, const DatasetContext& context) {
  const int64_t length = spec.options["length"].as_int();
  const Value& path = spec.options["path"];
  const auto tokenizer = OpenTokenizer(spec.options["tokenizer"], context);
  TokenList tokens;
  int64_t bytes = 0;
  for (const std::string& file :
       Files(path.is_null() ? kLicenceTexts : ResolvePath(path.as_string(), context))) {
    const std::string text = ReadFile(file, "text for training");
    bytes += static_cast<int64_t>(text.size());
    tokenizer->Encode(text, tokens);
  }
  const bool has_targets = spec.options["targets"] != Value(false);
  const bool has_splits = has_targets && spec.options["split"] != Value("all");
  const bool train = !has_splits || IsTrain(spec);
  const int64_t held_out = has_splits ? kHeldOut : 0;
  const int64_t least = std::max<int64_t>(held_out, 1);
  if (PiecesOf(tokens, length, has_targets) < least) {
    const std::string unit = tokenizer->unit();
    const std::string got = unit == "byte" ? "" : Str(tokens.size(), " ", unit, "s of ");
    throw WorldError(Str("text: expected at least ", Plural(least, "piece"), " of ", length, " ",
                         unit, "s", has_targets ? Str(" and one ", unit, " more") : "", ", got ",
                         got, bytes, " bytes"));
  }
  const std::string what = Str("text: ", FormatBytes(static_cast<double>(bytes)));
  return std::make_unique<Pieces>(std::move(tokens),
                                  PiecesOptions{length, held_out, train, has_targets,
                                                tokenizer->vocabulary(), tokenizer->unit(), what});
}

}  // namespace strata::data
