// The data of records with texts or tokens: running text, each text with its target, and whole
// texts below the step pack.
#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/base/error.h"
#include "engine/data/files/prepared.h"
#include "engine/data/records/json_lines.h"
#include "engine/data/records/labels.h"
#include "engine/data/records/record_files.h"
#include "engine/data/sources.h"
#include "engine/data/text_ends.h"
#include "engine/data/token_pieces.h"

namespace strata::data {
namespace {

/// The tokens of records: those of a text, or a list of numbers that the record has.
class TokenField {
 public:
  TokenField(const Value& options, const DatasetContext& context)
      : is_text_(options["tokens"].is_null()),
        name_(options[is_text_ ? "text" : "tokens"].as_string()),
        tokenizer_(OpenTokenizer(options["tokenizer"], context)) {}
  const std::string& name() const { return name_; }
  /// Bytes of a stored token.
  int width() const { return is_text_ ? TokenWidth(*tokenizer_) : 4; }
  /// 0 = not known.
  int64_t vocabulary() const { return is_text_ ? tokenizer_->vocabulary() : 0; }
  std::string unit() const { return is_text_ ? tokenizer_->unit() : "token"; }
  std::string key() const { return Str(Value(name_).ToLua(), is_text_ ? "" : " tokens"); }

  void Append(const Record& record, TokenList& tokens) const {
    if (is_text_) return tokenizer_->Encode(TextOf(record.fields, name_, record.where), tokens);
    const Value& list = EntryOf(record.fields, name_, record.where);
    if (!list.is_list()) Refuse(record, list);
    for (const Value& token : list.as_list()) {
      constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
      if (!token.is_int() || token.as_int() < 0 || token.as_int() > kMost) Refuse(record, token);
      tokens.push_back(static_cast<int32_t>(token.as_int()));
    }
  }
  /// Appends the token that ends a text; lists are as they are.
  void AppendEnd(TokenList& tokens) const {
    const auto end = static_cast<int32_t>(tokenizer_->end_of_text());
    if (is_text_ && end >= 0) tokens.push_back(end);
  }

 private:
  [[noreturn]] void Refuse(const Record& record, const Value& got) const {
    throw WorldError(Str(record.where, ": \"", name_, "\" expects a list of tokens, whole numbers ",
                         "from 0 on; got ", got.Describe()));
  }

  const bool is_text_;
  const std::string name_;
  const std::unique_ptr<Tokenizer> tokenizer_;
};

/// Writes the tokens of all texts, at most `length` of each, their ends, and their targets.
Value WriteLabelled(const RecordFiles& files, const TokenField& field, LabelWriter& labels,
                    int64_t length, PreparedWriter& to) {
  TextEndsWriter ends;
  TokenList tokens;
  Wanted wanted = {{field.name()}};
  if (!labels.field().empty()) wanted.fields.push_back(labels.field());
  files.ForEach(wanted, [&](const Record& record) {
    tokens.clear();
    field.Append(record, tokens);
    tokens.resize(std::min(tokens.size(), static_cast<size_t>(length)));
    to.WriteTokens(tokens, field.width());
    ends.Add(tokens.size());
    labels.Add(record);
  });
  if (ends.texts() == 0) RefuseEmpty(files);
  Value facts = Value::MakeMap({{"texts", ends.texts()}, {"ends_at", ends.Write(to)}});
  labels.Write(to, facts);
  return facts;
}

/// Texts and their targets. A text is cut off or padded to `length` tokens.
class LabelledTexts : public Dataset {
 public:
  LabelledTexts(const DataSpec& spec, std::string path, int width, Prepared prepared)
      : what_(Str(spec.kind, ": ")),
        path_(std::move(path)),
        length_(spec.options["length"].as_int()),
        pad_(spec.options["pad"].as_int()),
        has_targets_(spec.options["targets"] != Value(false)),
        prepared_(std::move(prepared)),
        labels_(prepared_),
        size_(prepared_.facts["texts"].as_int()),
        ends_(prepared_.bytes.data() + prepared_.facts["ends_at"].as_int()) {
    const auto ends_at = static_cast<size_t>(prepared_.facts["ends_at"].as_int());
    tokens_ = {prepared_.bytes.first(ends_at), width, nullptr};
    ExpectRandomReadsIfLarge(prepared_.bytes);
  }
  int64_t size() const override { return size_; }
  TensorSpec input() const override { return {{length_}, DType::kInt64}; }
  TensorSpec target() const override { return labels_.spec(); }
  int64_t classes() const override { return labels_.classes(); }
  std::vector<std::string> class_names() const override { return labels_.names(); }
  bool has_targets() const override { return has_targets_; }
  std::string description() const override {
    return Str(what_, FormatCount(size()), " texts of ", path_, ", up to ", length_, " tokens, ",
               classes(), " classes");
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    if (target) labels_.Copy(sample.index, target);
    if (!input) return;
    const int64_t count = ends_.Tokens(sample.index);
    tokens_.Copy(ends_.Begin(sample.index), count, input);
    for (int64_t i = count; i < length_; ++i) {
      std::memcpy(input + static_cast<size_t>(i) * sizeof(pad_), &pad_, sizeof(pad_));
    }
  }

 private:
  const std::string what_, path_;
  const int64_t length_, pad_;
  const bool has_targets_;
  const Prepared prepared_;
  const Labels labels_;
  const int64_t size_;
  const TextEnds ends_;
  TokenSequence tokens_;
};

/// The texts as samples of their own lengths (DatasetContext::documents). Each is its tokens
/// without the last one; the target is the next token.
class WholeTexts : public Dataset {
 public:
  WholeTexts(TokenSequence tokens, int64_t texts, const TextEnds& ends, int64_t vocabulary,
             std::string what)
      : tokens_(std::move(tokens)),
        size_(texts),
        ends_(ends),
        vocabulary_(vocabulary),
        what_(std::move(what)) {}
  int64_t size() const override { return size_; }
  TensorSpec input() const override { return SpecOf(0); }
  TensorSpec target() const override { return SpecOf(0); }
  int64_t classes() const override { return vocabulary_; }
  std::string description() const override { return what_; }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    const int64_t begin = ends_.Begin(sample.index), count = SpecOf(sample.index).shape[0];
    if (input) tokens_.Copy(begin, count, input);
    if (target) tokens_.Copy(begin + 1, count, target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    return WholeText(SpecOf(sample.index).shape[0],
                     [&](std::byte* input, std::byte* target) { Read(sample, input, target); });
  }

 private:
  TensorSpec SpecOf(int64_t index) const {
    return {{std::max<int64_t>(0, ends_.Tokens(index) - 1)}, DType::kInt64};
  }

  const TokenSequence tokens_;
  const int64_t size_;
  const TextEnds ends_;
  const int64_t vocabulary_;
  const std::string what_;
};

/// All texts one after the other, each followed by the token that ends a text; with `documents`
/// each text for itself.
std::unique_ptr<Dataset> OpenRunning(const DataSpec& spec, const RecordFiles& files,
                                     const std::string& tokenizer_path, const TokenField& field,
                                     bool documents) {
  const auto write = [&](PreparedWriter& to) {
    TextEndsWriter ends;
    TokenList tokens;
    files.ForEach({{field.name()}}, [&](const Record& record) {
      tokens.clear();
      field.Append(record, tokens);
      field.AppendEnd(tokens);
      to.WriteTokens(tokens, field.width());
      ends.Add(tokens.size());
    });
    return Value::MakeMap(
        {{"texts", ends.texts()}, {"tokens", ends.tokens()}, {"ends_at", ends.Write(to)}});
  };
  const Prepared prepared = Prepare(
      {Str(files.format, ", version 2, ", field.key()), files.paths, tokenizer_path}, write);
  const auto bytes = static_cast<size_t>(prepared.facts["tokens"].as_int() * field.width());
  TokenSequence tokens = {prepared.bytes.first(bytes), field.width(), prepared.owner};
  const int64_t texts = prepared.facts["texts"].as_int();
  const std::string what = Str(spec.kind, ": ", FormatCount(texts), " texts of ", files.given);
  if (documents) {
    if (texts == 0) RefuseEmpty(files);
    const TextEnds ends(prepared.bytes.data() + prepared.facts["ends_at"].as_int());
    return std::make_unique<WholeTexts>(std::move(tokens), texts, ends, field.vocabulary(), what);
  }
  const int64_t length = spec.options["length"].as_int();
  const bool has_targets = spec.options["targets"] != Value(false);
  if (PiecesOf(tokens, length, has_targets) < 1) {
    throw WorldError(Str(files.given, ": expected at least ", length + (has_targets ? 1 : 0), " ",
                         field.unit(), "s of text, got ", tokens.size()));
  }
  return std::make_unique<Pieces>(
      std::move(tokens),
      PiecesOptions{length, 0, true, has_targets, field.vocabulary(), field.unit(), what});
}

}  // namespace

std::unique_ptr<Dataset> OpenRecordTexts(const DataSpec& spec, const RecordFiles& files,
                                         const RecordFiles* like, const DatasetContext& context) {
  const Value& options = spec.options;
  const TokenField field(options, context);
  const std::string tokenizer_path = TokenizerPath(options["tokenizer"], context);
  if (options["target"].is_null()) {
    return OpenRunning(spec, files, tokenizer_path, field, context.documents);
  }
  const int64_t length = options["length"].as_int();
  PreparedKey key = {
      Str(files.format, ", version 3, ", field.key(), ", ", KeyOfLabels(options), ", ", length),
      files.paths, tokenizer_path};
  if (like) key.files.insert(key.files.end(), like->paths.begin(), like->paths.end());
  Prepared prepared = Prepare(key, [&](PreparedWriter& to) {
    LabelWriter labels(options, like);
    return WriteLabelled(files, field, labels, length, to);
  });
  return std::make_unique<LabelledTexts>(spec, files.given, field.width(), std::move(prepared));
}

}  // namespace strata::data
