#include "engine/data/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/base/error.h"
#include "engine/base/fields/fields.h"
#include "engine/base/text.h"
#include "engine/data/records/json_lines.h"
#include "engine/data/tokens/utf8.h"
#include "engine/data/tokens/word_splitter.h"

namespace strata::data {
namespace {

/// `text` without white space at both ends, as Python's strip() removes it.
std::string_view Stripped(std::string_view text) {
  const auto is_space = [](char32_t c) { return IsSpace(c) || (c >= 0x1c && c <= 0x1f); };
  while (!text.empty()) {
    const Character first = FirstCharacter(text);
    if (first.bytes == 0 || !is_space(first.code)) break;
    text.remove_prefix(first.bytes);
  }
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && IsContinuation(text[last])) --last;
    const Character character = FirstCharacter(text.substr(last));
    if (character.bytes == 0 || !is_space(character.code)) break;
    text = text.substr(0, last);
  }
  return text;
}

/// Appends a template's own text: its special tokens, and what stands between them.
void Append(std::string_view text, const std::vector<std::string>& specials, bool is_answer,
            std::vector<ChatPart>& parts) {
  while (!text.empty()) {
    size_t at = text.size();
    std::string_view special;
    for (const std::string& one : specials) {
      const size_t found = text.find(one);
      if (found < at) std::tie(at, special) = std::pair(found, std::string_view(one));
    }
    if (at > 0) parts.push_back({std::string(text.substr(0, at)), false, is_answer});
    if (!special.empty()) parts.push_back({std::string(special), true, is_answer});
    text.remove_prefix(at + special.size());
  }
}

/// Throws if users and assistants do not take turns behind the system message.
void CheckTurns(const ChatTemplate& form, const std::vector<ChatMessage>& messages,
                const std::string& where) {
  const size_t first = messages[0].role == "system" ? 1 : 0;
  for (size_t i = first; i < messages.size(); ++i) {
    const char* const expected = (i - first) % 2 == 0 ? "user" : "assistant";
    if (messages[i].role == expected) continue;
    throw WorldError(Str(where, ": message ", i + 1, ": the template ", form.name, " expects \"",
                         expected, "\" here, got \"", messages[i].role, "\""));
  }
}

/// A form of conversations in files: the keys, and its roles in the order system, user, assistant.
struct LineForm {
  const char *list, *role, *content;
  std::vector<std::string> roles;
};

const LineForm& Plain() {
  static const LineForm form = {"messages", "role", "content", {"system", "user", "assistant"}};
  return form;
}

const LineForm& ShareGpt() {
  static const LineForm form = {"conversations", "from", "value", {"system", "human", "gpt"}};
  return form;
}

const LineForm& FormOf(const Value& line) {
  return line.Has(Plain().list) || !line.Has(ShareGpt().list) ? Plain() : ShareGpt();
}

}  // namespace

// The models whose templates these are. chat_test.cc names the texts with which they were compared;
// the "chat_template" of a model's own tokenizer_config.json was at hand for none of them.
//   llama3    Meta-Llama-3-8B-Instruct
//   qwen2.5   Qwen2.5-7B-Instruct
//   mistral   Mistral-7B-Instruct-v0.3, by the tokenizer V3 of mistral-common. That one puts the
//             system message before the last user's message. Here it stands before the first one's,
//             as in V1, so that all answers of a conversation follow it.
//   chatml    OpenHermes-2.5-Mistral-7B
const std::vector<ChatTemplate>& ChatTemplates() {
  using Turn = ChatTemplate::Turn;
  static constexpr Turn kSystem = {"<|im_start|>system\n", "<|im_end|>"};
  static constexpr Turn kUser = {"<|im_start|>user\n", "<|im_end|>"};
  static constexpr Turn kAssistant = {"<|im_start|>assistant\n", "<|im_end|>"};
  static constexpr std::string_view kSpecials = "<|im_start|> <|im_end|>";
  static const std::vector<ChatTemplate> templates = {
      {.name = "llama3",
       .specials = "<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|>",
       .begin = "<|begin_of_text|>",
       .system = {"<|start_header_id|>system<|end_header_id|>\n\n", "<|eot_id|>"},
       .user = {"<|start_header_id|>user<|end_header_id|>\n\n", "<|eot_id|>"},
       .assistant = {"<|start_header_id|>assistant<|end_header_id|>\n\n", "<|eot_id|>"},
       .after = "",
       .trims = true},
      {.name = "qwen2.5",
       .specials = kSpecials,
       .begin = "",
       .system = kSystem,
       .user = kUser,
       .assistant = kAssistant,
       .after = "\n",
       .default_system = "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."},
      {.name = "mistral",
       .specials = "<s> [INST] [/INST] </s>",
       .begin = "<s>",
       .system = {},
       .user = {"[INST]", "[/INST]"},
       .assistant = {"", "</s>"},
       .after = "",
       .has_spaces = true,
       .folds_system = true},
      {.name = "chatml",
       .specials = kSpecials,
       .begin = "",
       .system = kSystem,
       .user = kUser,
       .assistant = kAssistant,
       .after = "\n"},
  };
  return templates;
}

std::vector<std::string> SpecialsOf(const ChatTemplate& form) { return Split(form.specials, ' '); }

std::vector<ChatPart> PartsOf(const ChatTemplate& form, const std::vector<ChatMessage>& messages,
                              const std::string& where) {
  const std::vector<std::string> specials = SpecialsOf(form);
  std::vector<ChatPart> parts;
  const auto add = [&](const ChatTemplate::Turn& turn, std::string_view content, bool is_answer) {
    if (form.trims) content = Stripped(content);
    Append(turn.before, specials, false, parts);
    parts.push_back({std::string(content), false, is_answer, form.has_spaces});
    Append(turn.end, specials, is_answer, parts);
    Append(form.after, specials, false, parts);
  };
  if (form.folds_system) CheckTurns(form, messages, where);
  Append(form.begin, specials, false, parts);
  const bool has_system = messages[0].role == "system";
  if (!has_system && !form.default_system.empty()) add(form.system, form.default_system, false);
  std::string folded;
  for (const auto& [role, content] : messages) {
    if (role == "system" && form.folds_system) {
      folded = content + "\n\n";
    } else if (role == "assistant") {
      add(form.assistant, content, true);
    } else {
      add(role == "system" ? form.system : form.user, folded + content, false);
      folded.clear();
    }
  }
  return parts;
}

std::vector<std::string> ConversationFields() { return {Plain().list, ShareGpt().list}; }

std::vector<ChatPart> PromptOf(const ChatTemplate& form, const std::vector<ChatMessage>& messages,
                               const std::string& where) {
  std::vector<ChatPart> parts = PartsOf(form, messages, where);
  Append(form.assistant.before, SpecialsOf(form), false, parts);
  return parts;
}

std::vector<ChatMessage> MessagesOf(const Value& line, const std::string& where) {
  static constexpr std::array kRoles = {"system", "user", "assistant"};
  const LineForm& form = FormOf(line);
  const Value& list = EntryOf(line, form.list, where);
  if (!list.is_list()) {
    throw WorldError(
        Str(where, ": \"", form.list, "\" expects a list of messages, got ", list.Describe()));
  }
  std::vector<ChatMessage> messages;
  bool has_answer = false;
  for (const Value& message : list.as_list()) {
    const std::string place = Str(where, ": message ", messages.size() + 1);
    if (!message.is_map()) {
      throw WorldError(Str(place, ": expected {\"", form.role, "\": ..., \"", form.content,
                           "\": ...}, got ", message.Describe()));
    }
    const std::string& role = TextOf(message, form.role, place);
    const auto found = std::ranges::find(form.roles, role);
    if (found == form.roles.end()) {
      throw WorldError(Str(place, ": \"", form.role, "\" expects one of \"",
                           Join(form.roles, "\", \""), "\"; got \"", role, "\"",
                           DidYouMean(role, form.roles, 0)));
    }
    const auto index = static_cast<size_t>(found - form.roles.begin());
    messages.push_back({kRoles[index], TextOf(message, form.content, place)});
    has_answer = has_answer || index == 2;
  }
  if (has_answer) return messages;
  throw WorldError(Str(where, ": expected a message of \"", form.roles[2], "\", the answer; got ",
                       Plural(std::ssize(messages), "message"), " without one"));
}

Value ToValue(const std::vector<ChatMessage>& messages) {
  Value::List list;
  for (const auto& [role, content] : messages) {
    list.push_back(Value::MakeMap({{"role", role}, {"content", content}}));
  }
  return list;
}

std::vector<ChatPart> PartsFrom(const Value& value) {
  static const FieldTable fields = {
      Field::String("text", "characters, or the text of a special token"),
      Field::Bool("train", "the loss counts it").Default(false),
      Field::Bool("special", "the text is one special token").Default(false)};
  if (!value.is_list()) throw ConfigError(Str("expected a list of parts, got ", value.Describe()));
  std::vector<ChatPart> parts;
  for (const Value& one : value.as_list()) {
    Call call = CallOf(one);
    call.subject = Str("part ", parts.size() + 1);
    const Value part = Canonicalize(fields, call);
    parts.push_back({part["text"].as_string(), part["special"].as_bool(), part["train"].as_bool()});
  }
  return parts;
}

}  // namespace strata::data
