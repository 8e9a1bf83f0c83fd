// The data source "text": the bytes or tokens of text files, cut into pieces, for predicting the
// next token.
#include "engine/base/text.h"

#include <algorithm>
#include <filesystem>
#include <vector>

#include "engine/base/error.h"
#include "engine/data/files/data_progress.h"
#include "engine/data/files/folder.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/files/prepared.h"
#include "engine/data/sources.h"
#include "engine/data/token_pieces.h"

namespace strata::data {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHeldOut = 10;  // every tenth piece is held out
constexpr const char* kExpected = "text for training";
const char* const kLicenceTexts = "/usr/share/common-licenses";  // exists on every Debian machine

/// The file `path`, or the files of the folder `path`, sorted. Symbolic links in a folder are
/// skipped, since they only repeat a file.
std::vector<std::string> Files(const std::string& path) {
  std::error_code error;
  if (!fs::is_directory(path, error)) return {path};
  std::vector<std::string> files;
  for (const fs::path& file : ListFolder(path).files) {
    if (fs::is_regular_file(file) && !fs::is_symlink(file)) files.push_back(file.string());
  }
  if (files.empty()) throw WorldError(Str("no file in the folder ", path));
  return files;
}

struct Text {
  TokenSequence tokens;
  int64_t bytes = 0;  // of the files
};

/// The bytes of a large file are its tokens, so it is only mapped.
Text MappedText(const std::string& path) {
  const auto file = std::make_shared<const MappedFile>(path, kExpected);
  return {{file->bytes(), 1, file}, static_cast<int64_t>(file->bytes().size())};
}

/// Reads all files; `tokenizer_path` is "" for bytes.
Text ReadText(const std::vector<std::string>& files, const std::string& tokenizer_path,
              const Tokenizer& tokenizer) {
  int64_t total = 0;
  std::error_code error;  // a file that is missing is refused where it is read
  for (const std::string& file : files) {
    const auto size = static_cast<int64_t>(fs::file_size(file, error));
    total += error ? 0 : size;
  }
  const bool is_one = files.size() == 1;
  if (is_one && tokenizer_path.empty() && total >= kLeastPrepared) return MappedText(files[0]);
  const int width = TokenWidth(tokenizer);
  const Prepared prepared =
      Prepare({"text, version 1", files, tokenizer_path}, [&](PreparedWriter& to) {
        // A tokenizer takes a file as a whole, so no share of a single one is known.
        DataProgress progress(is_one ? Reading(files[0]) : Str("reading ", files.size(), " files"),
                              is_one ? 0 : total);
        int64_t bytes = 0;
        TokenList tokens;
        for (const std::string& path : files) {
          const MappedFile file(path, kExpected);
          tokens.clear();
          if (tokenizer_path.empty()) {
            to.Write(file.bytes().data(), file.bytes().size());
          } else {
            tokenizer.Encode(file.text(), tokens);
            to.WriteTokens(tokens, width);
          }
          bytes += static_cast<int64_t>(file.bytes().size());
          progress.At(bytes);
        }
        return Value(bytes);
      });
  return {{prepared.bytes, width, prepared.owner}, prepared.facts.as_int()};
}

}  // namespace

std::unique_ptr<Dataset> OpenText(const DataSpec& spec, const DatasetContext& context) {
  const int64_t length = spec.options["length"].as_int();
  const Value& path = spec.options["path"];
  const auto tokenizer = OpenTokenizer(spec.options["tokenizer"], context);
  Text text =
      ReadText(Files(path.is_null() ? kLicenceTexts : ResolvePath(path.as_string(), context)),
               TokenizerPath(spec.options["tokenizer"], context), *tokenizer);
  const bool has_targets = spec.options["targets"] != Value(false);
  const bool has_splits = has_targets && spec.options["split"] != Value("all");
  const bool train = !has_splits || IsTrain(spec);
  const int64_t held_out = has_splits ? kHeldOut : 0;
  const int64_t least = std::max<int64_t>(held_out, 1);
  if (PiecesOf(text.tokens, length, has_targets) < least) {
    const std::string unit = tokenizer->unit();
    const std::string got = unit == "byte" ? "" : Str(text.tokens.size(), " ", unit, "s of ");
    throw WorldError(Str("text: expected at least ", Plural(least, "piece"), " of ", length, " ",
                         unit, "s", has_targets ? Str(" and one ", unit, " more") : "", ", got ",
                         got, text.bytes, " bytes"));
  }
  const std::string what = Str("text: ", FormatBytes(static_cast<double>(text.bytes)));
  return std::make_unique<Pieces>(std::move(text.tokens),
                                  PiecesOptions{length, held_out, train, has_targets,
                                                tokenizer->vocabulary(), tokenizer->unit(), what});
}

}  // namespace strata::data
