#include "launcher/prompt.h"

#include "engine/base/error.h"
#include "launcher/interrupts.h"

namespace strata::launcher {
namespace {

constexpr const char* kFirst = "> ";
constexpr const char* kMore = ">> ";

class Prompt {
 public:
  Prompt(lua::State& state, Terminal& terminal) : state_(state), terminal_(terminal) {}

  const char* text() const { return pending_.empty() ? kFirst : kMore; }

  void Take(const std::string& line) {
    const std::string input = pending_.empty() ? line : pending_ + "\n" + line;
    pending_.clear();
    try {
      const lua::Evaluation result = state_.Evaluate(input);
      if (result.incomplete) pending_ = input;
      if (!result.shown.empty()) terminal_.Line(result.shown);
    } catch (const Error& error) {
      Fail(error.what());
    }
  }

  void Forget() { pending_.clear(); }

  void End() {
    if (!pending_.empty()) Fail("the input ends before its last statement does");
  }

  int errors() const { return errors_; }

 private:
  void Fail(const std::string& text) {
    terminal_.ErrorLine(text);
    ++errors_;
  }

  lua::State& state_;
  Terminal& terminal_;
  std::string pending_;  // the beginning of something longer
  int errors_ = 0;
};

}  // namespace

int RunPrompt(lua::State& state, LineSource& lines, Terminal& terminal) {
  Interrupts interrupts(state);
  Prompt prompt(state, terminal);
  while (true) {
    const Line line = lines.Read(prompt.text());
    if (line.kind == Line::Kind::kEnd) break;
    if (line.kind == Line::Kind::kInterrupted) {
      prompt.Forget();
    } else {
      prompt.Take(line.text);
    }
  }
  prompt.End();
  return prompt.errors();
}

}  // namespace strata::launcher
