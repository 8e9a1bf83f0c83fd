// The data source "chat": conversations in records as tokens, of which the loss counts those of
// answers.
//
// Each conversation becomes the tokens t[0], t[1], ... of its template's parts. Sample i has the
// input t[0 .. length - 1] and the target t[1 .. length]; targets that are not an answer's, and
// those behind the end, are kNoLabel, which losses ignore. Prepared data has the tokens of all
// conversations as int32, a counted token t as -1 - t, and then the end of each conversation.
#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/checkpoint/files/tensor_name.h"
#include "engine/data/chat_prompt.h"
#include "engine/data/chat_template.h"
#include "engine/data/files/mapped_file.h"
#include "engine/data/files/prepared.h"
#include "engine/data/records/record_files.h"
#include "engine/data/sample_text.h"
#include "engine/data/sources.h"
#include "engine/data/text_ends.h"
#include "engine/data/token_pieces.h"
#include "engine/layers/script.h"
#include "engine/layers/targets.h"

namespace strata::data {
namespace {

int32_t Counted(int32_t token) { return -1 - token; }
bool IsCounted(int32_t stored) { return stored < 0; }
int32_t TokenOf(int32_t stored) { return IsCounted(stored) ? Counted(stored) : stored; }

/// The option `template` of a job: a published template, or a function of the script.
class Template {
 public:
  Template(const DataSpec& spec, const DatasetContext& context) {
    const Value& option = spec.options["template"];
    std::vector<std::string> names;
    for (const ChatTemplate& form : ChatTemplates()) {
      names.emplace_back(form.name);
      if (option == Value(form.name)) form_ = &form;
    }
    if (form_) return;
    if (!option.is_function()) {
      const std::string near = option.is_string() ? DidYouMean(option.as_string(), names, 0) : "";
      throw ConfigError(Str(Place(spec.where), "strata.data.chat: template expects one of \"",
                            Join(names, "\", \""), "\", or a function(messages) that returns ",
                            "parts; got ", option.Describe(), near));
    }
    function_ = option.as_function();
    // What calls functions on samples calls functions on plain values, too.
    script_ = dynamic_cast<Script*>(context.script);
    if (!script_) throw ConfigError("strata.data.chat needs its script");
  }
  /// Null if it is a function.
  const ChatTemplate* form() const { return form_; }
  std::string name() const {
    if (form_) return std::string(form_->name);
    return function_.where.empty() ? "of the prompt" : function_.where;
  }

  std::vector<ChatPart> PartsOf(const std::vector<ChatMessage>& messages,
                                const std::string& where) const {
    if (form_) return data::PartsOf(*form_, messages, where);
    try {
      return PartsFrom(script_->Call(function_, {ToValue(messages)}));
    } catch (const ConfigError& error) {
      throw ConfigError(Str(Place(function_.where), "template, for ", where, ": ", error.what()));
    }
  }

 private:
  const ChatTemplate* form_ = nullptr;
  FunctionRef function_;
  Script* script_ = nullptr;
};

/// Encodes the parts of conversations in the form of one template.
class PartEncoder {
 public:
  PartEncoder(std::string form, const Tokenizer& tokenizer)
      : form_(std::move(form)), tokenizer_(tokenizer) {}

  int32_t Special(const std::string& text, const std::string& where) {
    const auto [entry, is_new] = specials_.try_emplace(text, -1);
    if (is_new) entry->second = tokenizer_.SpecialToken(text);
    if (entry->second >= 0) return entry->second;
    throw ConfigError(Str(where, ": the template ", form_, " needs the special token \"", text,
                          "\", which the tokenizer does not have"));
  }

  /// Looks up the special tokens of all parts, which Append() then finds no text to spell.
  void Expect(const std::vector<ChatPart>& parts, const std::string& where) {
    for (const ChatPart& part : parts) {
      if (part.is_special) Special(part.text, where);
    }
  }

  void Append(const ChatPart& part, const std::string& where, TokenList& tokens) {
    if (part.is_special) return tokens.push_back(Special(part.text, where));
    const size_t begin = tokens.size();
    const bool has_space = part.follows_space && !tokenizer_.adds_space();
    tokenizer_.EncodeContent(has_space ? " " + part.text : part.text, tokens);
    for (const auto& [text, special] : specials_) {
      const auto from = tokens.begin() + static_cast<ptrdiff_t>(begin);
      if (std::find(from, tokens.end(), special) == tokens.end()) continue;
      throw WorldError(Str(where, ": a message has \"", text, "\", which would be a special token ",
                           "of the template: the tokenizer finds it in any text"));
    }
  }

 private:
  const std::string form_;
  const Tokenizer& tokenizer_;
  std::map<std::string, int32_t> specials_;
};

/// Encodes conversations.
class ChatEncoder {
 public:
  /// `where` is the place in the script.
  ChatEncoder(const Template& form, const Tokenizer& tokenizer, bool counts_all,
              const std::string& where)
      : form_(form), parts_(form.name(), tokenizer), counts_all_(counts_all) {
    if (!form.form()) return;
    for (const std::string& text : SpecialsOf(*form.form())) {
      parts_.Special(text, Place(where) + "strata.data.chat");
    }
  }

  /// Replaces `tokens` by those of a conversation.
  void Encode(const std::vector<ChatMessage>& messages, const std::string& where,
              TokenList& tokens) {
    const std::vector<ChatPart> parts = form_.PartsOf(messages, where);
    parts_.Expect(parts, where);
    tokens.clear();
    bool has_answer = false;
    for (const ChatPart& part : parts) {
      const size_t begin = tokens.size();
      parts_.Append(part, where, tokens);
      has_answer |= part.is_answer && tokens.size() > begin;
      if (!part.is_answer && !counts_all_) continue;
      for (size_t i = begin; i < tokens.size(); ++i) tokens[i] = Counted(tokens[i]);
    }
    if (has_answer) return;
    throw ConfigError(Str("template ", form_.name(), ", for ", where,
                          ": expected a part with train=true, got none"));
  }

 private:
  const Template& form_;
  PartEncoder parts_;
  const bool counts_all_;
};

/// Writes the tokens of all conversations, at most `length` + 1 of each, and their ends.
Value WriteChat(const RecordFiles& files, int64_t length, ChatEncoder& encoder,
                PreparedWriter& to) {
  TextEndsWriter ends;
  TokenList tokens;
  int64_t cut = 0, longest = 0, unanswered = 0;
  files.ForEach({ConversationFields(), true}, [&](const Record& record) {
    encoder.Encode(MessagesOf(record.fields, record.where), record.where, tokens);
    longest = std::max(longest, std::ssize(tokens));
    if (std::ssize(tokens) > length + 1) {
      ++cut;
      tokens.resize(static_cast<size_t>(length) + 1);
      if (std::none_of(tokens.begin() + 1, tokens.end(), IsCounted)) ++unanswered;
    }
    to.WriteTokens(tokens, sizeof(tokens[0]));
    ends.Add(tokens.size());
  });
  if (ends.texts() == 0) RefuseEmpty(files);
  return Value::MakeMap({{"rows", ends.texts()},
                         {"ends_at", ends.Write(to)},
                         {"cut", cut},
                         {"longest", longest},
                         {"unanswered", unanswered}});
}

class Chat : public Dataset, public HasSampleText {
 public:
  Chat(const DataSpec& spec, std::string path, std::string form,
       std::unique_ptr<Tokenizer> tokenizer, Prepared prepared, bool documents)
      : path_(std::move(path)),
        form_(std::move(form)),
        tokenizer_(std::move(tokenizer)),
        documents_(documents),
        length_(spec.options["length"].as_int()),
        pad_(spec.options["pad"].as_int()),
        prepared_(std::move(prepared)),
        rows_(prepared_.facts["rows"].as_int()),
        ends_(prepared_.bytes.data() + prepared_.facts["ends_at"].as_int()) {
    ExpectRandomReadsIfLarge(prepared_.bytes);
  }
  int64_t size() const override { return rows_; }
  TensorSpec input() const override { return {{length_}, DType::kInt64}; }
  TensorSpec target() const override { return {{length_}, DType::kInt64}; }
  int64_t classes() const override { return tokenizer_->vocabulary(); }
  std::vector<std::string> notes() const override {
    const int64_t cut = prepared_.facts["cut"].as_int();
    const int64_t unanswered = prepared_.facts["unanswered"].as_int();
    if (cut == 0) return {};
    return {Str(FormatCount(cut), " of ", Plural(rows_, "conversation"), " in ", QuotedName(path_),
                cut == 1 ? " is" : " are", " cut off behind length=", length_, " ",
                tokenizer_->unit(), "s; the longest has ",
                FormatCount(prepared_.facts["longest"].as_int()),
                unanswered > 0 ? Str("; ", FormatCount(unanswered), " of them ",
                                     unanswered == 1 ? "keeps" : "keep", " no answer")
                               : "")};
  }
  std::string description() const override {
    const std::string most =
        documents_ ? "" : Str(", up to ", length_, " ", tokenizer_->unit(), "s");
    return Str("chat: ", Plural(rows_, "conversation"), " of ", path_, most, ", template ", form_);
  }
  void Read(Sample sample, std::byte* input, std::byte* target) const override {
    Write(Stored(sample.index), length_, input, target);
  }
  PlainSample ReadPlain(Sample sample) const override {
    if (!documents_) return Dataset::ReadPlain(sample);
    const std::vector<int32_t> stored = Stored(sample.index);
    return WholeText(std::ssize(stored), [&](std::byte* input, std::byte* target) {
      Write(stored, std::ssize(stored), input, target);
    });
  }
  /// Counted tokens stand in brackets.
  std::string sample_text(int64_t index) const override {
    std::string text;
    bool is_inside = false;
    for (const int32_t token : Stored(index)) {
      if (IsCounted(token) != is_inside) text += is_inside ? "\u27e7" : "\u27e6";
      is_inside = IsCounted(token);
      text += tokenizer_->Decode(TokenOf(token));
    }
    return text + (is_inside ? "\u27e7" : "");
  }

 private:
  /// Writes a conversation, of up to `length` + 1 tokens, as a sample of `length` tokens.
  void Write(const std::vector<int32_t>& stored, int64_t length, std::byte* input,
             std::byte* target) const {
    std::vector<int64_t> row(static_cast<size_t>(length), pad_);
    if (input) {
      std::ranges::transform(stored.begin(), stored.begin() + std::min(std::ssize(stored), length),
                             row.begin(), TokenOf);
      std::memcpy(input, row.data(), row.size() * sizeof(row[0]));
    }
    if (!target) return;
    std::ranges::fill(row, kNoLabel);
    for (size_t i = 1; i < stored.size(); ++i) {
      if (IsCounted(stored[i])) row[i - 1] = TokenOf(stored[i]);
    }
    std::memcpy(target, row.data(), row.size() * sizeof(row[0]));
  }
  /// The tokens of a conversation as they are stored.
  std::vector<int32_t> Stored(int64_t index) const {
    std::vector<int32_t> stored(static_cast<size_t>(ends_.Tokens(index)));
    const size_t begin = static_cast<size_t>(ends_.Begin(index)) * sizeof(int32_t);
    std::memcpy(stored.data(), prepared_.bytes.data() + begin, stored.size() * sizeof(int32_t));
    return stored;
  }

  const std::string path_, form_;
  const std::unique_ptr<Tokenizer> tokenizer_;
  const bool documents_;  // DatasetContext::documents
  const int64_t length_, pad_;
  const Prepared prepared_;
  const int64_t rows_;
  const TextEnds ends_;
};

}  // namespace

ChatPrompt MakeChatPrompt(const Value& form, const std::string& message,
                          const Tokenizer& tokenizer) {
  const auto found = std::ranges::find_if(
      ChatTemplates(), [&](const ChatTemplate& one) { return form == Value(one.name); });
  if (found == ChatTemplates().end()) {
    throw ConfigError(Str("chat: the template of the job's data must be a published one, got ",
                          form.Describe(), "; write the prompt in its form, without chat"));
  }
  const std::string where = "a prompt";
  const std::vector<ChatPart> parts = PromptOf(*found, {{"user", message}}, where);
  PartEncoder encoder(std::string(found->name), tokenizer);
  encoder.Expect(parts, where);
  ChatPrompt prompt = {{}, encoder.Special(std::string(found->assistant.end), where)};
  for (const ChatPart& part : parts) encoder.Append(part, where, prompt.tokens);
  return prompt;
}

std::unique_ptr<Dataset> OpenChat(const DataSpec& spec, const DatasetContext& context) {
  const Template form(spec, context);
  const RecordFiles files = FindRecords("", spec.options["path"].as_string(), context);
  std::unique_ptr<Tokenizer> tokenizer = OpenTokenizer(spec.options["tokenizer"], context);
  // Below the step pack no conversation is cut off.
  const int64_t length =
      context.documents ? std::numeric_limits<int32_t>::max() : spec.options["length"].as_int();
  const Value& train_on = spec.options["train_on"];
  PreparedKey key = {Str("chat, version 1, ", form.name(), ", ", length, ", ", train_on.ToLua()),
                     files.paths, TokenizerPath(spec.options["tokenizer"], context)};
  // What a function gives may depend on more than its file, so no copy is kept of it.
  if (!form.form()) key.files.clear();
  ChatEncoder encoder(form, *tokenizer, train_on == Value("all"), spec.where);
  Prepared prepared =
      Prepare(key, [&](PreparedWriter& to) { return WriteChat(files, length, encoder, to); });
  return std::make_unique<Chat>(spec, files.given, form.name(), std::move(tokenizer),
                                std::move(prepared), context.documents);
}

}  // namespace strata::data
