// The data source "jsonl": texts in a file with one JSON object per line.
#include <algorithm>
#include <cstring>
#include <map>

#include "engine/base/error.h"
#include "engine/base/value_json.h"
#include "engine/checkpoint/files/strict_json.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/sources.h"
#include "engine/data/token_pieces.h"

namespace strata::data {
namespace {

constexpr size_t kMostLevels = 100;

/// Calls body(object, "PATH:LINE") for every line that is not empty.
template <class Body>
void ForEachLine(const std::string& path, const Body& body) {
  const MappedFile file(path, "JSON objects, one a line");
  std::string_view text = file.text();
  for (int line = 1; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view one = Trim(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (one.empty()) continue;
    const std::string where = Str(path, ":", line);
    if (std::string trouble = Utf8Trouble(one); !trouble.empty()) {
      throw WorldError(Str(where, ": ", trouble));
    }
    const Value object = ParseStrictJson(one, kMostLevels, where);
    if (!object.is_map()) {
      throw WorldError(Str(where, ": expected a JSON object, got ", object.Describe()));
    }
    body(object, where);
  }
}

const Value& EntryOf(const Value& object, const std::string& key, const std::string& where) {
  if (const Value* entry = object.Find(key)) return *entry;
  std::vector<std::string> keys;
  for (const auto& [name, value] : object.as_map()) keys.push_back(name);
  throw WorldError(Str(where, ": there is no \"", key, "\"", DidYouMean(key, keys)));
}

const std::string& TextOf(const Value& object, const std::string& key, const std::string& where) {
  const Value& text = EntryOf(object, key, where);
  if (text.is_string()) return text.as_string();
  throw WorldError(Str(where, ": \"", key, "\" expects a text, got ", text.Describe()));
}

/// The classes of a file: words, numbered in sorted order, or whole numbers.
struct Classes {
  std::map<std::string, int64_t> words;
  int64_t most = -1;

  int64_t count() const { return words.empty() ? most + 1 : static_cast<int64_t>(words.size()); }
};

[[noreturn]] void RefuseClass(const std::string& where, const std::string& key, const Value& got) {
  throw WorldError(Str(where, ": \"", key, "\" expects a class, words everywhere or whole numbers ",
                       "from 0 on; got ", got.Describe()));
}

Classes ClassesIn(const std::string& path, const std::string& key) {
  Classes classes;
  ForEachLine(path, [&](const Value& object, const std::string& where) {
    const Value& value = EntryOf(object, key, where);
    if (value.is_string() && classes.most < 0) {
      classes.words[value.as_string()];
    } else if (value.is_int() && value.as_int() >= 0 && value.as_int() <= 1000000 &&
               classes.words.empty()) {
      classes.most = std::max(classes.most, value.as_int());
    } else {
      RefuseClass(where, key, value);
    }
  });
  int64_t index = 0;
  for (auto& [word, number] : classes.words) number = index++;
  return classes;
}

int64_t ClassOf(const Classes& classes, const Value& value, const std::string& key,
                const std::string& where) {
  if (!classes.words.empty() && value.is_string()) {
    const auto found = classes.words.find(value.as_string());
    if (found != classes.words.end()) return found->second;
    std::vector<std::string> words;
    for (const auto& [word, number] : classes.words) words.push_back(word);
    throw WorldError(Str(where, ": the training has no \"", value.as_string(), "\"",
                         DidYouMean(value.as_string(), words)));
  }
  const bool is_number = classes.words.empty() && value.is_int() && value.as_int() >= 0 &&
                         value.as_int() <= classes.most;
  if (!is_number) RefuseClass(where, key, value);
  return value.as_int();
}

/// Texts and their classes. A text is cut off or padded to `length` tokens.
class LabelledTexts : public Dataset {
 public:
  LabelledTexts(const DataSpec& spec, const std::string& path, const Tokenizer& tokenizer,
                Classes classes)
      : path_(path),
        has_targets_(spec.options["targets"] != Value(false)),
        length_(static_cast<size_t>(spec.options["length"].as_int())),
        classes_(std::move(classes)),
        pad_(static_cast<int32_t>(spec.options["pad"].as_int())) {
    const std::string& text = spec.options["text"].as_string();
    const std::string& target = spec.options["target"].as_string();
    ForEachLine(path, [&](const Value& object, const std::string& where) {
      const size_t begin = tokens_.size();
      tokenizer.Encode(TextOf(object, text, where), tokens_);
      tokens_.resize(std::min(tokens_.size(), begin + length_));
      ends_.push_back(tokens_.size());
      labels_.push_back(
          has_targets_ ? ClassOf(classes_, EntryOf(object, target, where), target, where) : 0);
    });
    if (labels_.empty()) throw WorldError(Str(path, ": expected JSON lines, got none"));
  }
  int64_t size() const override { return static_cast<int64_t>(labels_.size()); }
  TensorSpec input() const override { return {{static_cast<int64_t>(length_)}, DType::kInt64}; }
  TensorSpec target() const override { return {{}, DType::kInt64}; }
  int64_t classes() const override { return classes_.count(); }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    for (const auto& [word, number] : classes_.words) names.push_back(word);
    return names;
  }
  bool has_targets() const override { return has_targets_; }
  std::string description() const override {
    return Str("jsonl: ", FormatCount(size()), " texts of ", path_, ", up to ", length_,
               " tokens, ", classes(), " classes");
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const auto index = static_cast<size_t>(sample.index);
    if (target) std::memcpy(target, &labels_[index], sizeof(int64_t));
    if (!input) return;
    const size_t begin = index == 0 ? 0 : ends_[index - 1];
    for (size_t i = 0; i < length_; ++i, input += sizeof(int64_t)) {
      const int64_t token = begin + i < ends_[index] ? tokens_[begin + i] : pad_;
      std::memcpy(input, &token, sizeof(token));
    }
  }

 private:
  const std::string path_;
  const bool has_targets_;
  const size_t length_;
  const Classes classes_;
  const int32_t pad_;
  TokenList tokens_;
  std::vector<size_t> ends_;  // the end of each text in tokens_
  std::vector<int64_t> labels_;
};

/// All texts one after the other, each followed by the token that ends a text.
std::unique_ptr<Dataset> OpenRunning(const DataSpec& spec, const std::string& path,
                                     const Tokenizer& tokenizer) {
  TokenList tokens;
  int64_t texts = 0;
  ForEachLine(path, [&](const Value& object, const std::string& where) {
    tokenizer.Encode(TextOf(object, spec.options["text"].as_string(), where), tokens);
    if (tokenizer.end_of_text() >= 0) {
      tokens.push_back(static_cast<int32_t>(tokenizer.end_of_text()));
    }
    ++texts;
  });
  const int64_t length = spec.options["length"].as_int();
  const bool has_targets = spec.options["targets"] != Value(false);
  if (PiecesOf(tokens, length, has_targets) < 1) {
    throw WorldError(Str(path, ": expected at least ", length + (has_targets ? 1 : 0), " ",
                         tokenizer.unit(), "s of text, got ", tokens.size()));
  }
  return std::make_unique<Pieces>(
      std::move(tokens),
      PiecesOptions{length, 0, true, has_targets, tokenizer.vocabulary(), tokenizer.unit(),
                    Str("jsonl: ", FormatCount(texts), " texts of ", path)});
}

}  // namespace

std::unique_ptr<Dataset> OpenJsonl(const DataSpec& spec, const DatasetContext& context) {
  const std::string path = ResolvePath(spec.options["path"].as_string(), context);
  const auto tokenizer = OpenTokenizer(spec.options["tokenizer"], context);
  const Value& target = spec.options["target"];
  if (target.is_null()) return OpenRunning(spec, path, *tokenizer);
  const Value& like = spec.options["like"];
  Classes classes =
      ClassesIn(like.is_null() ? path : ResolvePath(like.as_string(), context), target.as_string());
  return std::make_unique<LabelledTexts>(spec, path, *tokenizer, std::move(classes));
}

}  // namespace strata::data
