// The data source "jsonl": texts in a file with one JSON object per line.
#include <algorithm>
#include <cstring>
#include <map>

#include "engine/base/error.h"
#include "engine/data/files/prepared.h"
#include "engine/data/json_lines.h"
#include "engine/data/sources.h"
#include "engine/data/token_pieces.h"

namespace strata::data {
namespace {

[[noreturn]] void RefuseClass(const std::string& where, const std::string& key, const Value& got) {
  throw WorldError(Str(where, ": \"", key, "\" expects a class, words everywhere or whole numbers ",
                       "from 0 on; got ", got.Describe()));
}

/// The classes of a file: words, numbered in sorted order, or whole numbers.
struct Classes {
  std::map<std::string, int64_t> words;  // in the order of their appearance until Settle()
  int64_t most = -1;

  int64_t count() const { return words.empty() ? most + 1 : static_cast<int64_t>(words.size()); }
  /// Takes in the class of a line and returns its number. Numbers of words hold until Settle().
  int64_t Add(const Value& value, const std::string& key, const std::string& where) {
    if (value.is_string() && most < 0) {
      return words.emplace(value.as_string(), std::ssize(words)).first->second;
    }
    const bool is_number = value.is_int() && value.as_int() >= 0 && value.as_int() <= 1000000;
    if (!is_number || !words.empty()) RefuseClass(where, key, value);
    most = std::max(most, value.as_int());
    return value.as_int();
  }
  /// Numbers the words in sorted order. Returns the new number of each old one.
  std::vector<int64_t> Settle() {
    std::vector<int64_t> renumbered(words.size());
    int64_t index = 0;
    for (auto& [word, number] : words) {
      renumbered[static_cast<size_t>(number)] = index;
      number = index++;
    }
    return renumbered;
  }
};

Classes ClassesIn(const std::string& path, const std::string& key) {
  Classes classes;
  ForEachJsonLine(path, [&](const Value& object, const std::string& where) {
    classes.Add(EntryOf(object, key, where), key, where);
  });
  classes.Settle();
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

/// The options of a job for texts with classes.
struct LabelledOptions {
  explicit LabelledOptions(const DataSpec& spec)
      : text(spec.options["text"].as_string()),
        target(spec.options["target"].as_string()),
        length(spec.options["length"].as_int()),
        has_targets(spec.options["targets"] != Value(false)) {}
  const std::string text, target;
  const int64_t length;
  const bool has_targets;
};

/// Writes the tokens of all texts, the end of each text (uint64, in tokens), and its class (int64).
/// The classes are those of the file `like`; if it is the same file, it is read once.
Value WriteLabelled(const std::string& path, const std::string& like,
                    const LabelledOptions& options, const Tokenizer& tokenizer,
                    PreparedWriter& to) {
  const std::string& key = options.target;
  const bool has_own_classes = like == path && options.has_targets;
  Classes classes = has_own_classes ? Classes() : ClassesIn(like, key);
  std::vector<uint64_t> ends;
  std::vector<int64_t> labels;
  TokenList tokens;
  ForEachJsonLine(path, [&](const Value& object, const std::string& where) {
    tokens.clear();
    tokenizer.Encode(TextOf(object, options.text, where), tokens);
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(options.length)));
    to.WriteTokens(tokens, TokenWidth(tokenizer));
    ends.push_back((ends.empty() ? 0 : ends.back()) + tokens.size());
    labels.push_back(0);
    if (!options.has_targets) return;
    const Value& label = EntryOf(object, key, where);
    labels.back() =
        has_own_classes ? classes.Add(label, key, where) : ClassOf(classes, label, key, where);
  });
  if (has_own_classes && !classes.words.empty()) {
    const std::vector<int64_t> renumbered = classes.Settle();
    for (int64_t& label : labels) label = renumbered[static_cast<size_t>(label)];
  }
  if (labels.empty()) throw WorldError(Str(path, ": expected JSON lines, got none"));
  const int64_t ends_at = to.Align();
  to.Write(ends.data(), ends.size() * sizeof(ends[0]));
  to.Write(labels.data(), labels.size() * sizeof(labels[0]));
  Value::List words;
  for (const auto& [word, number] : classes.words) words.emplace_back(word);
  return Value::MakeMap({{"texts", std::ssize(labels)},
                         {"ends_at", ends_at},
                         {"classes", classes.count()},
                         {"words", std::move(words)}});
}

/// Texts and their classes. A text is cut off or padded to `length` tokens.
class LabelledTexts : public Dataset {
 public:
  LabelledTexts(const DataSpec& spec, std::string path, int width, Prepared prepared)
      : path_(std::move(path)),
        options_(spec),
        pad_(spec.options["pad"].as_int()),
        prepared_(std::move(prepared)),
        size_(prepared_.facts["texts"].as_int()),
        classes_(prepared_.facts["classes"].as_int()) {
    const auto ends_at = static_cast<size_t>(prepared_.facts["ends_at"].as_int());
    tokens_ = {prepared_.bytes.first(ends_at), width, nullptr};
    ends_ = prepared_.bytes.data() + ends_at;
    ExpectRandomReadsIfLarge(prepared_.bytes);
  }
  int64_t size() const override { return size_; }
  TensorSpec input() const override { return {{options_.length}, DType::kInt64}; }
  TensorSpec target() const override { return {{}, DType::kInt64}; }
  int64_t classes() const override { return classes_; }
  std::vector<std::string> class_names() const override {
    std::vector<std::string> names;
    for (const Value& word : prepared_.facts["words"].as_list()) names.push_back(word.as_string());
    return names;
  }
  bool has_targets() const override { return options_.has_targets; }
  std::string description() const override {
    return Str("jsonl: ", FormatCount(size()), " texts of ", path_, ", up to ", options_.length,
               " tokens, ", classes(), " classes");
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    if (target) std::memcpy(target, Number(size_ + sample.index), sizeof(int64_t));
    if (!input) return;
    const int64_t begin = sample.index == 0 ? 0 : End(sample.index - 1);
    const int64_t count = End(sample.index) - begin;
    tokens_.Copy(begin, count, input);
    for (int64_t i = count; i < options_.length; ++i) {
      std::memcpy(input + static_cast<size_t>(i) * sizeof(pad_), &pad_, sizeof(pad_));
    }
  }

 private:
  /// A number of the list of ends and of the list of classes behind it.
  const std::byte* Number(int64_t index) const {
    return ends_ + static_cast<size_t>(index) * sizeof(int64_t);
  }
  int64_t End(int64_t index) const {
    int64_t end = 0;
    std::memcpy(&end, Number(index), sizeof(end));
    return end;
  }

  const std::string path_;
  const LabelledOptions options_;
  const int64_t pad_;
  const Prepared prepared_;
  const int64_t size_, classes_;
  TokenSequence tokens_;
  const std::byte* ends_ = nullptr;
};

/// The texts as samples of their own lengths (DatasetContext::documents). Each is its tokens
/// without the last one; the target is the next token.
class WholeTexts : public Dataset {
 public:
  /// The token behind the last one of text i is number ends[i] of `tokens`.
  WholeTexts(TokenSequence tokens, std::span<const std::byte> ends, const Tokenizer& tokenizer,
             std::string path)
      : tokens_(std::move(tokens)),
        ends_(ends),
        vocabulary_(tokenizer.vocabulary()),
        path_(std::move(path)) {}
  int64_t size() const override {
    return std::ssize(ends_) / static_cast<int64_t>(sizeof(int64_t));
  }
  TensorSpec input() const override { return SpecOf(0); }
  TensorSpec target() const override { return SpecOf(0); }
  int64_t classes() const override { return vocabulary_; }
  std::string description() const override {
    return Str("jsonl: ", FormatCount(size()), " texts of ", path_);
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t begin = End(sample.index - 1), count = SpecOf(sample.index).shape[0];
    if (input) tokens_.Copy(begin, count, input);
    if (target) tokens_.Copy(begin + 1, count, target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    return WholeText(SpecOf(sample.index).shape[0],
                     [&](std::byte* input, std::byte* target) { Read(sample, input, target); });
  }

 private:
  int64_t End(int64_t index) const {
    int64_t end = 0;
    if (index < 0) return end;
    std::memcpy(&end, ends_.data() + static_cast<size_t>(index) * sizeof(end), sizeof(end));
    return end;
  }
  TensorSpec SpecOf(int64_t index) const {
    return {{std::max<int64_t>(0, End(index) - End(index - 1) - 1)}, DType::kInt64};
  }

  const TokenSequence tokens_;
  const std::span<const std::byte> ends_;  // int64
  const int64_t vocabulary_;
  const std::string path_;
};

/// All texts one after the other, each followed by the token that ends a text; with `documents`
/// each text for itself.
std::unique_ptr<Dataset> OpenRunning(const DataSpec& spec, const std::string& path,
                                     const std::string& tokenizer_path, const Tokenizer& tokenizer,
                                     bool documents) {
  const std::string& key = spec.options["text"].as_string();
  const int width = TokenWidth(tokenizer);
  const auto write = [&](PreparedWriter& to) {
    std::vector<int64_t> ends;
    TokenList tokens;
    ForEachJsonLine(path, [&](const Value& object, const std::string& where) {
      tokens.clear();
      tokenizer.Encode(TextOf(object, key, where), tokens);
      const auto end = static_cast<int32_t>(tokenizer.end_of_text());
      if (end >= 0) tokens.push_back(end);
      to.WriteTokens(tokens, width);
      ends.push_back((ends.empty() ? 0 : ends.back()) + std::ssize(tokens));
    });
    const int64_t ends_at = to.Align();
    to.Write(ends.data(), ends.size() * sizeof(ends[0]));
    return Value::MakeMap({{"texts", std::ssize(ends)},
                           {"tokens", ends.empty() ? 0 : ends.back()},
                           {"ends_at", ends_at}});
  };
  const Prepared prepared =
      Prepare({Str("jsonl, version 2, ", Value(key).ToLua()), {path}, tokenizer_path}, write);
  const auto bytes = static_cast<size_t>(prepared.facts["tokens"].as_int() * width);
  TokenSequence tokens = {prepared.bytes.first(bytes), width, prepared.owner};
  if (documents) {
    if (prepared.facts["texts"] == Value(0)) {
      throw WorldError(path + ": expected JSON lines, got none");
    }
    const auto ends_at = static_cast<size_t>(prepared.facts["ends_at"].as_int());
    return std::make_unique<WholeTexts>(std::move(tokens), prepared.bytes.subspan(ends_at),
                                        tokenizer, path);
  }
  const int64_t length = spec.options["length"].as_int();
  const bool has_targets = spec.options["targets"] != Value(false);
  if (PiecesOf(tokens, length, has_targets) < 1) {
    throw WorldError(Str(path, ": expected at least ", length + (has_targets ? 1 : 0), " ",
                         tokenizer.unit(), "s of text, got ", tokens.size()));
  }
  const int64_t texts = prepared.facts["texts"].as_int();
  return std::make_unique<Pieces>(
      std::move(tokens),
      PiecesOptions{length, 0, true, has_targets, tokenizer.vocabulary(), tokenizer.unit(),
                    Str("jsonl: ", FormatCount(texts), " texts of ", path)});
}

}  // namespace

std::unique_ptr<Dataset> OpenJsonl(const DataSpec& spec, const DatasetContext& context) {
  const std::string path = ResolvePath(spec.options["path"].as_string(), context);
  const auto tokenizer = OpenTokenizer(spec.options["tokenizer"], context);
  const std::string tokenizer_path = TokenizerPath(spec.options["tokenizer"], context);
  if (spec.options["target"].is_null()) {
    return OpenRunning(spec, path, tokenizer_path, *tokenizer, context.documents);
  }
  const Value& option = spec.options["like"];
  const std::string like = option.is_null() ? path : ResolvePath(option.as_string(), context);
  const LabelledOptions options(spec);
  PreparedKey key = {
      Str("jsonl, version 1, ", Value(options.text).ToLua(), ", ", Value(options.target).ToLua(),
          ", ", options.length, ", ", options.has_targets),
      {path},
      tokenizer_path};
  if (like != path) key.files.push_back(like);
  Prepared prepared = Prepare(
      key, [&](PreparedWriter& to) { return WriteLabelled(path, like, options, *tokenizer, to); });
  return std::make_unique<LabelledTexts>(spec, path, TokenWidth(*tokenizer), std::move(prepared));
}

}  // namespace strata::data
