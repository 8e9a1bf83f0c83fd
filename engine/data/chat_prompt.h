// Chat prompts: a user's message in the form of a chat template, for a model that answers it.
#pragma once

#include <string>

#include "engine/base/value.h"
#include "engine/data/tokens/tokenizer.h"

namespace strata::data {

struct ChatPrompt {
  TokenList tokens;  ///< up to the place where the assistant's answer begins
  int64_t end = -1;  ///< the token that ends the answer
};

/// `form` is the option `template` of the data source "chat". Throws ConfigError if it is not the
/// name of a published template, or if the tokenizer lacks one of its special tokens; WorldError if
/// the message spells one, and the tokenizer finds it in any text.
ChatPrompt MakeChatPrompt(const Value& form, const std::string& message,
                          const Tokenizer& tokenizer);

}  // namespace strata::data
