// Chat templates: how a conversation is written as one text for a model. Internal to engine/data.
//
// A template turns messages into parts. A special part is the text of one special token. Any other
// part stays plain text, even if it spells a special token, so that a message cannot write
// "<|im_start|>" and begin a turn of its own. Each part is encoded by itself, as in the trainings
// of these models.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "engine/base/value.h"

namespace strata::data {

/// A message of a conversation. The role is "system", "user" or "assistant".
struct ChatMessage {
  std::string role;
  std::string content;
};

struct ChatPart {
  std::string text;
  bool is_special = false;
  bool is_answer = false;      ///< the loss counts the tokens of this part
  bool follows_space = false;  ///< a space stands before the text and is encoded with it
};

/// The form of a published template. A turn is `before`, the content and `end`; of an assistant's
/// turn the content and `end` are the answer. `after` follows each turn.
struct ChatTemplate {
  struct Turn {
    std::string_view before, end;
  };
  std::string_view name;
  std::string_view specials;  ///< texts of special tokens that the strings below have, by spaces
  std::string_view begin;     ///< before the first message
  Turn system, user, assistant;
  std::string_view after;
  std::string_view default_system = {};  ///< the content of a system message if there is none
  bool trims = false;                    ///< white space at both ends of a content is removed
  bool has_spaces = false;               ///< a space follows `before`
  /// A system message has no turn: it stands before the first user's content, followed by an empty
  /// line, and users and assistants take turns.
  bool folds_system = false;
};

/// The published templates.
const std::vector<ChatTemplate>& ChatTemplates();

/// The texts of a template's special tokens.
std::vector<std::string> SpecialsOf(const ChatTemplate& form);

/// The conversation as parts. Throws WorldError with `where` if the template does not allow the
/// order of the roles.
std::vector<ChatPart> PartsOf(const ChatTemplate& form, const std::vector<ChatMessage>& messages,
                              const std::string& where);

/// The fields that may hold the list of messages: one for each form that MessagesOf() reads.
std::vector<std::string> ConversationFields();

/// The same, and behind it what stands before the assistant's next answer.
std::vector<ChatPart> PromptOf(const ChatTemplate& form, const std::vector<ChatMessage>& messages,
                               const std::string& where);

/// The messages of a line: {"messages": [{"role":, "content":}]}, or as ShareGPT has them
/// {"conversations": [{"from": "human", "value":}]}. Throws WorldError with `where` for anything
/// else, and if no message is an assistant's.
std::vector<ChatMessage> MessagesOf(const Value& line, const std::string& where);

/// What a script's template function takes and gives: the messages as plain data, and parts
/// {text=, train=, special=} or texts. Throws ConfigError for another value.
Value ToValue(const std::vector<ChatMessage>& messages);
std::vector<ChatPart> PartsFrom(const Value& value);

}  // namespace strata::data
