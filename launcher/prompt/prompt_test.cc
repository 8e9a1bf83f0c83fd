// Tests of the prompt with lines from a list.
#include "launcher/prompt/prompt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/time.h>

#include <deque>

#include "launcher/testing.h"

namespace strata::launcher {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// A source of fixed lines, which also records the prompts.
class TypedLines : public LineSource {
 public:
  explicit TypedLines(std::deque<Line> lines) : lines_(std::move(lines)) {}
  Line Read(const std::string& prompt) override {
    prompts.push_back(prompt);
    if (lines_.empty()) return {};
    Line line = lines_.front();
    lines_.pop_front();
    return line;
  }
  std::vector<std::string> prompts;

 private:
  std::deque<Line> lines_;
};

Line Text(const std::string& text) { return {Line::Kind::kText, text}; }
const Line kCtrlC = {Line::Kind::kInterrupted, ""};

class PromptTest : public testing::Test {
 protected:
  /// Types the lines and returns what the terminal shows.
  std::string Type(std::deque<Line> lines) {
    lua::StateOptions options;
    options.seconds = 0;
    lua::State state(options);
    TypedLines typed(std::move(lines));
    CapturedTerminal captured;
    errors = RunPrompt(state, typed, captured.terminal());
    prompts = typed.prompts;
    return captured.Text();
  }
  int errors = -1;
  std::vector<std::string> prompts;
};

TEST_F(PromptTest, ShowsValues) {
  EXPECT_EQ(Type({Text("1 + 1"), Text("x = 5"), Text("x * 2")}), "2\n10\n");
  EXPECT_EQ(errors, 0);
}

TEST_F(PromptTest, SeveralLines) {
  EXPECT_EQ(Type({Text("function f(a)"), Text("  return a + 1"), Text("end"), Text("f(41)")}),
            "42\n");
  EXPECT_THAT(prompts, ElementsAre("> ", ">> ", ">> ", "> ", "> "));
}

TEST_F(PromptTest, TakesTheTimeOnRequest) {
  EXPECT_THAT(Type({Text(":time 1 + 1"), Text("7")}),
              testing::MatchesRegex("2\ntime [0-9.]+ [a-z]+\n7\n"));
  EXPECT_THAT(Type({Text(":time"), Text("x = 1"), Text(""), Text(":time"), Text("7")}),
              testing::MatchesRegex("every line shows its time\ntime [0-9.]+ [a-z]+\n"
                                    "no line shows its time\n7\n"));
  EXPECT_THAT(Type({Text(":time for i = 1, 2 do"), Text("end"), Text("7")}),
              testing::MatchesRegex("time [0-9.]+ [a-z]+\n7\n"));
}

TEST_F(PromptTest, LeavesOnRequest) {
  for (const char* word : {":quit", "exit", "quit()", " exit() "}) {
    EXPECT_EQ(Type({Text("1"), Text(word), Text("2")}), "1\n") << word;
  }
  EXPECT_EQ(errors, 0);
}

TEST_F(PromptTest, NamesTheCommandsThatThereAre) {
  EXPECT_THAT(Type({Text(":tiem 1")}), HasSubstr("did you mean \":time\"?"));
  EXPECT_EQ(errors, 1);
  EXPECT_THAT(Type({Text(":help clip")}), HasSubstr("job.clip: "));
}

TEST_F(PromptTest, AnErrorIsShownInOnePieceAndTheNextLineRuns) {
  const std::string shown = Type({Text("nosuch.field"), Text("'next'")});
  EXPECT_THAT(shown, HasSubstr("nosuch"));
  EXPECT_THAT(shown, HasSubstr("next"));
  EXPECT_EQ(errors, 1);
}

TEST_F(PromptTest, CtrlCForgetsTheBeginning) {
  EXPECT_EQ(Type({Text("function f("), kCtrlC, Text("7")}), "7\n");
  EXPECT_EQ(errors, 0);
}

TEST_F(PromptTest, TheEndInTheMiddleOfAStatementIsAnError) {
  EXPECT_EQ(Type({Text("function f(")}), "the input ends before its last statement does\n");
  EXPECT_EQ(errors, 1);
}

/// Presses Ctrl-C as soon as a line has been read.
class Interrupted : public TypedLines {
 public:
  using TypedLines::TypedLines;
  Line Read(const std::string& prompt) override {
    Line line = TypedLines::Read(prompt);
    if (line.text.find("while true") == 0) {
      struct itimerval soon = {{0, 0}, {0, 20'000}};
      ::signal(SIGALRM, [](int) { ::raise(SIGINT); });
      ::setitimer(ITIMER_REAL, &soon, nullptr);
    }
    return line;
  }
};

TEST_F(PromptTest, CtrlCEndsAnEndlessLoop) {
  lua::StateOptions options;
  options.seconds = 0;
  lua::State state(options);
  Interrupted typed({Text("while true do end"), Text("'alive'")});
  CapturedTerminal captured;
  EXPECT_EQ(RunPrompt(state, typed, captured.terminal()), 1);
  const std::string shown = captured.Text();
  EXPECT_THAT(shown, HasSubstr("interrupted"));
  EXPECT_THAT(shown, HasSubstr("alive"));
}

}  // namespace
}  // namespace strata::launcher
