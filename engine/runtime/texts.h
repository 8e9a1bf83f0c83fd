// Texts: converts prompts to tokens, and tokens that an engine chooses back to text. Shared by
// `strata generate` and e:generate{}. Torch-free.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/value.h"
#include "engine/data/tokens/tokenizer.h"
#include "engine/job/job.h"
#include "engine/job/job_fields.h"
#include "engine/plan/language_model.h"
#include "engine/plan/plan.h"
#include "engine/runtime/engine.h"

namespace strata {

/// Some prompts and the texts that a model writes after them.
class Texts {
 public:
  /// Receives the next piece of a text, in whole characters, and whether the text ends with it.
  using OnPiece = std::function<void(size_t prompt, const std::string& piece, bool is_last)>;

  /// `options`: canonical options of TextFields(). Without the option `tokenizer`, the tokenizer of
  /// the job's data is used. The tokenizer's before_text() is put before each prompt unless the
  /// prompt begins with it. With `chat` each prompt is a user's message, and the text is it, a
  /// newline and the answer. Throws ConfigError if there is no tokenizer, if it has more tokens
  /// than the model, if a prompt is empty or leaves no room for a new token, and as
  /// LanguageModelOf() and MakeChatPrompt() do; WorldError as ReadTokenizer() does.
  Texts(const Job& job, const Plan& plan, const Value& options,
        const std::vector<std::string>& prompts);

  const TextRequest& request() const { return request_; }
  /// The prompts, each followed by what was written after it.
  const std::vector<std::string>& texts() const { return texts_; }
  /// The number of texts that ended because the model's input is full.
  int64_t cut_off() const { return cut_off_; }

  /// Lets `engine` write all texts from their prompts; collective, as the engine's calls are.
  /// `begun` (may be null) is called first with the engine's report. Returns the number of new
  /// tokens.
  int64_t Write(TextEngine& engine, const std::function<void(const TextReport&)>& begun,
                const OnPiece& on_piece);

 private:
  void Take(const NewToken& token, const OnPiece& on_piece);

  std::unique_ptr<data::Tokenizer> tokenizer_;
  TextRequest request_;
  const std::vector<std::string> prompts_;
  std::vector<std::string> texts_;
  std::vector<size_t> told_;  // bytes of each text that were passed to on_piece
  std::vector<int64_t> new_tokens_;
  int64_t cut_off_ = 0;
};

/// The texts of job.eval.samples; null if the job has none. Throws as Texts() does.
std::unique_ptr<Texts> SamplesOf(const Job& job, const Plan& plan);

/// Returns the text for a terminal: bytes that are no valid UTF-8 and control characters other than
/// newline and tab become U+FFFD.
std::string Printable(const std::string& text);

}  // namespace strata
