// Texts: from prompts to tokens, and from the tokens that an engine chooses back to texts; what
// `strata generate` and e:generate{} share. Torch-free.
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

/// The texts of some prompts.
class Texts {
 public:
  /// Told what a text goes on with, in whole characters; and whether it ends.
  using OnPiece = std::function<void(size_t prompt, const std::string& piece, bool is_last)>;

  /// `options`: canonical, of TextFields(). Without the option `tokenizer`, that of the job's data
  /// is used. Each prompt has the tokenizer's before_text() before it. Throws ConfigError where
  /// there is none, for one with more tokens than the model, for a prompt that is empty or leaves
  /// no room, and as LanguageModelOf(); WorldError as ReadTokenizer().
  Texts(const Job& job, const Plan& plan, const Value& options, std::vector<std::string> prompts);

  const TextRequest& request() const { return request_; }
  /// The prompts, and what was written behind them.
  const std::vector<std::string>& texts() const { return texts_; }
  /// How many of them ended because the model reads no more tokens.
  int64_t cut_off() const { return cut_off_; }

  /// Lets `engine` write all of them; collective, as the engine's calls. `begun` (may be null) is
  /// told first how. Gives the number of new tokens. Each call begins with the prompts alone.
  int64_t Write(TextEngine& engine, const std::function<void(const TextReport&)>& begun,
                const OnPiece& on_piece);

 private:
  void Take(const NewToken& token, const OnPiece& on_piece);

  std::unique_ptr<data::Tokenizer> tokenizer_;
  TextRequest request_;
  const std::vector<std::string> prompts_;
  std::vector<std::string> texts_;
  std::vector<size_t> told_;  // bytes of each text
  std::vector<int64_t> new_tokens_;
  int64_t cut_off_ = 0;
};

/// Those of job.eval.samples; null where there are none. Throws as Texts().
std::unique_ptr<Texts> SamplesOf(const Job& job, const Plan& plan);

/// The text for a terminal: whatever is no character of UTF-8, or would move the cursor, is U+FFFD.
std::string Printable(const std::string& text);

}  // namespace strata
