// The prompt: inputs of several lines, and prompt commands such as ":time".
#include "launcher/prompt/prompt.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "engine/base/text.h"
#include "launcher/prompt/interrupts.h"

namespace strata::launcher {
namespace {

constexpr const char* kFirst = "> ";
constexpr const char* kMore = ">> ";

/// Inputs that leave the prompt, as Ctrl-D does.
constexpr std::array<std::string_view, 5> kQuit = {":quit", "exit", "exit()", "quit", "quit()"};

class Prompt {
 public:
  Prompt(lua::State& state, Terminal& terminal) : state_(state), terminal_(terminal) {}

  const char* text() const { return pending_.empty() ? kFirst : kMore; }

  void Take(const std::string& line) {
    const std::string input = pending_.empty() ? Command(line) : pending_ + "\n" + line;
    pending_.clear();
    if (leaves_) return;
    const auto start = std::chrono::steady_clock::now();
    try {
      const lua::Evaluation result = state_.Evaluate(input);
      if (result.incomplete) pending_ = input;
      if (!result.shown.empty()) terminal_.Line(result.shown);
    } catch (const Error& error) {
      Fail(error.what());
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
    if (!pending_.empty() || Trim(input).empty()) return;
    if (times_all_ || times_one_) terminal_.Line("time " + FormatSeconds(taken.count()));
    times_one_ = false;
  }

  /// Handles prompt commands such as ":time". Returns the Lua text that remains to be run.
  std::string Command(const std::string& line) {
    const std::string_view text = Trim(line);
    const std::string word(text.substr(0, text.find_first_of(" \t")));
    if (std::ranges::find(kQuit, word) != kQuit.end() && word.size() == text.size()) {
      leaves_ = true;
    } else if (word == ":time") {
      times_one_ = word.size() < text.size();
      if (times_one_) return std::string(text.substr(word.size()));
      times_all_ = !times_all_;
      terminal_.Line(times_all_ ? "every line shows its time" : "no line shows its time");
    } else if (word == ":help") {
      return "?" + std::string(text.substr(word.size()));
    } else if (word.starts_with(':') && !word.starts_with("::")) {
      const std::vector<std::string> known = {":time", ":help", ":quit"};
      Fail(Str("there is no command ", word, DidYouMean(word, known)));
    } else {
      return line;
    }
    return "";
  }

  void Forget() {
    pending_.clear();
    times_one_ = false;
  }

  bool leaves() const { return leaves_; }
  const std::string& pending() const { return pending_; }

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
  std::string pending_;  // the lines of an incomplete input
  int errors_ = 0;
  bool times_all_ = false;
  bool times_one_ = false;  // shows the time of the current input only
  bool leaves_ = false;
};

}  // namespace

int RunPrompt(lua::State& state, LineSource& lines, Terminal& terminal) {
  Interrupts interrupts(state);
  Prompt prompt(state, terminal);
  while (!prompt.leaves()) {
    lines.Continue(prompt.pending());
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
