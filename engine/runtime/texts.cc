// Tokens become text as they are chosen. A token may end within a UTF-8 character, so Take() passes
// on only whole characters and keeps the rest for the next token.
#include "engine/runtime/texts.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "engine/data/chat_prompt.h"
#include "engine/data/tokens/utf8.h"
#include "engine/job/data_source.h"
#include "engine/layers/layer_types.h"

namespace strata {
namespace {

/// A tokenizer whose text is token numbers, "15 496", for models whose data has no tokenizer.
class Numbers : public data::Tokenizer {
 public:
  explicit Numbers(int64_t vocabulary) : vocabulary_(vocabulary) {}
  int64_t vocabulary() const override { return vocabulary_; }
  void Encode(std::string_view text, data::TokenList& tokens) const override {
    for (const std::string& word : Split(Trim(text), ' ')) {
      int32_t token = -1;
      const char* const end = word.data() + word.size();
      const auto parsed = std::from_chars(word.data(), end, token);
      if (parsed.ptr != end || parsed.ec != std::errc() || token < 0 || token >= vocabulary_) {
        throw ConfigError(Str("a prompt of numbers: expected tokens from 0 to ", vocabulary_ - 1,
                              " with spaces between them, got \"", word, "\""));
      }
      tokens.push_back(token);
    }
  }
  std::string Decode(int32_t token) const override { return Str(" ", token); }

 private:
  const int64_t vocabulary_;
};

/// True if samples of the data source, or of one that it reads from, come from a tokenizer.
bool HasTokenizer(const std::string& kind, const Value& options) {
  const DataSourceType* const type = FindDataSource(kind);
  if (type && std::ranges::find(type->fields, "tokenizer", &Field::name) != type->fields.end()) {
    return true;
  }
  const Value& of = options["of"];
  const auto has = [](const Value& source) {
    return source.is_map() && HasTokenizer(source["source"].as_string(), source);
  };
  return of.is_list() ? std::ranges::any_of(of.as_list(), has) : has(of);
}

std::unique_ptr<data::Tokenizer> Open(const Value& tokenizer,
                                      const std::filesystem::path& folder = {}) {
  if (tokenizer.is_null() || tokenizer == Value("bytes")) return data::MakeByteTokenizer();
  return data::ReadTokenizer((folder / tokenizer.as_string()).string());
}

std::unique_ptr<data::Tokenizer> TokenizerOf(const Job& job, const Value& asked,
                                             const LanguageModel& model) {
  if (asked == Value("numbers")) return std::make_unique<Numbers>(model.vocabulary);
  if (!asked.is_null()) return Open(asked);
  for (const DataSpec* data : {&job.train_data, &job.test_data}) {
    if (data->kind.empty() || !HasTokenizer(data->kind, data->options)) continue;
    return Open(FindOption(data->options, "tokenizer"),
                std::filesystem::path(job.script).parent_path());
  }
  throw ConfigError(
      "the job's data has no tokenizer: give one, --tokenizer=tokenizer.json, or "
      "--tokenizer=bytes, or for prompts of numbers (\"15 496\") --tokenizer=numbers");
}

/// The template of the job's chats.
const Value& TemplateOf(const Job& job) {
  for (const DataSpec* data : {&job.train_data, &job.test_data}) {
    const Value& form = FindOption(data->options, "template");
    if (!form.is_null()) return form;
  }
  throw ConfigError("chat: the job's data is no strata.data.chat{...}, whose template is needed");
}

/// What stands before the new tokens of each text.
std::vector<std::string> Shown(std::vector<std::string> prompts, bool is_chat) {
  for (std::string& prompt : prompts) prompt += is_chat ? "\n" : "";
  return prompts;
}

/// True if the prompt already has the special tokens at its beginning.
bool BeginsWith(const data::TokenList& tokens, const data::TokenList& before) {
  return tokens.size() >= before.size() && std::equal(before.begin(), before.end(), tokens.begin());
}

/// The end of the longest part of `text`, from `begin` on, that does not end within a UTF-8
/// character. Invalid bytes that cannot become a character are included.
size_t WholeEnd(const std::string& text, size_t begin) {
  for (size_t back = 1; back <= 3 && back <= text.size() - begin; ++back) {
    const char byte = text[text.size() - back];
    if (data::IsContinuation(byte)) continue;
    return data::CharacterBytes(byte) > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

Texts::Texts(const Job& job, const Plan& plan, const Value& options,
             const std::vector<std::string>& prompts)
    : prompts_(Shown(prompts, options["chat"].as_bool())), texts_(prompts_) {
  const LanguageModel model = LanguageModelOf(job, plan);
  tokenizer_ = TokenizerOf(job, options["tokenizer"], model);
  if (tokenizer_->vocabulary() > model.vocabulary) {
    throw ConfigError(Str("the tokenizer has ", FormatCount(tokenizer_->vocabulary()),
                          " tokens, the model gives scores of ", FormatCount(model.vocabulary),
                          ": they do not belong together"));
  }
  request_.tokens = options["tokens"].as_int();
  request_.temperature = options["temperature"].as_double();
  request_.top_k = options["top_k"].as_int();
  request_.top_p = options["top_p"].as_double();
  request_.seed = options["seed"].as_int();
  request_.keeps_tokens = options["keep"].as_bool();
  request_.vocabulary = tokenizer_->vocabulary();
  request_.end = tokenizer_->end_of_text();
  if (prompts.empty()) throw ConfigError("there is no prompt");
  const bool is_chat = options["chat"].as_bool();
  const data::TokenList before = is_chat ? data::TokenList() : tokenizer_->before_text();
  for (size_t i = 0; i < prompts.size(); ++i) {
    std::vector<int32_t>& tokens = request_.prompts.emplace_back();
    if (is_chat && !prompts[i].empty()) {
      data::ChatPrompt chat = data::MakeChatPrompt(TemplateOf(job), prompts[i], *tokenizer_);
      tokens = std::move(chat.tokens);
      request_.end = chat.end;
    } else if (!prompts[i].empty()) {
      tokenizer_->Encode(prompts[i], tokens);
    }
    if (tokens.empty()) throw ConfigError(Str("prompt ", i + 1, " is empty"));
    if (!BeginsWith(tokens, before)) tokens.insert(tokens.begin(), before.begin(), before.end());
    const auto count = static_cast<int64_t>(tokens.size());
    if (count < model.length) continue;
    throw ConfigError(Str(
        "prompt ", i + 1, " has ", Plural(count, tokenizer_->unit()), "; the model reads ",
        model.length, " (the length of the job's input), so a prompt may have ", model.length - 1));
  }
}

int64_t Texts::Write(TextEngine& engine, const std::function<void(const TextReport&)>& begun,
                     const OnPiece& on_piece) {
  texts_ = prompts_;
  new_tokens_.assign(prompts_.size(), 0);
  cut_off_ = 0;
  told_.clear();
  for (const std::string& prompt : prompts_) told_.push_back(prompt.size());
  const TextReport report = engine.BeginTexts(request_);
  if (begun) begun(report);
  for (int64_t count = 0;;) {
    const std::vector<NewToken> tokens = engine.NextTokens();
    if (tokens.empty()) return count;
    for (const NewToken& token : tokens) Take(token, on_piece);
    count += static_cast<int64_t>(tokens.size());
  }
}

std::unique_ptr<Texts> SamplesOf(const Job& job, const Plan& plan) {
  const SamplesSpec& samples = job.eval.samples;
  if (samples.prompts.empty()) return nullptr;
  try {
    return std::make_unique<Texts>(job, plan, samples.options, samples.prompts);
  } catch (const ConfigError& error) {
    throw ConfigError(Str("eval.samples: ", error.what()));
  }
}

std::string Printable(const std::string& text) {
  static const std::string kNone = "\xef\xbf\xbd";
  const std::string valid = Value::FromJson(Value(text).ToJson()).as_string();
  std::string shown;
  for (size_t i = 0; i < valid.size(); ++i) {
    const auto byte = static_cast<uint8_t>(valid[i]);
    const bool moves = (byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f;
    const bool is_long = byte == 0xc2 && static_cast<uint8_t>(valid[i + 1]) < 0xa0;
    if (is_long) ++i;
    moves || is_long ? shown += kNone : shown += valid[i];
  }
  return shown;
}

void Texts::Take(const NewToken& token, const OnPiece& on_piece) {
  const auto prompt = static_cast<size_t>(token.prompt);
  std::string& text = texts_[prompt];
  size_t& told = told_[prompt];
  const bool is_end = token.token == request_.end;
  const bool has_all = ++new_tokens_[prompt] == request_.tokens;
  if (token.is_last && !is_end && !has_all) ++cut_off_;
  if (!is_end) text += tokenizer_->Decode(token.token);
  const size_t end = token.is_last ? text.size() : WholeEnd(text, told);
  if (end == told && !token.is_last) return;
  on_piece(prompt, text.substr(told, end - told), token.is_last);
  told = end;
}

}  // namespace strata
