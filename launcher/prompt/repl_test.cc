// Tests of `strata repl` on a terminal: what a user types and sees.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "launcher/terminal/pty_child.h"

namespace strata::launcher {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class ReplTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TERM", "xterm", 1);
    ::setenv("HOME", testing::TempDir().c_str(), 1);
    const std::string state = testing::TempDir() + "/repl_state";
    std::filesystem::remove_all(state);
    ::setenv("XDG_STATE_HOME", state.c_str(), 1);
  }
};

/// A running prompt that has shown its greeting.
class Repl : public PtyChild {
 public:
  explicit Repl(std::vector<std::string> arguments = {}) : PtyChild(Command(arguments)) {
    greeting = ReadUntil("\r\n> ");
  }
  std::string greeting;

 private:
  static std::vector<std::string> Command(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {"launcher/strata", "repl"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
  }
};

TEST_F(ReplTest, GreetsAndLeaves) {
  Repl repl;
  EXPECT_THAT(repl.greeting, AllOf(HasSubstr("Strata "), HasSubstr("Ctrl-D leaves")));
  repl.Type("\004");
  EXPECT_EQ(repl.Wait(), 0);
}

TEST_F(ReplTest, ShowsValues) {
  Repl repl;
  repl.Type("1 + 1\n");
  EXPECT_THAT(repl.ReadUntil("\r\n> "), HasSubstr("\r\n2\r\n"));
}

TEST_F(ReplTest, TakesSeveralLines) {
  Repl repl;
  repl.Type("for i = 1, 2 do\n");
  repl.ReadUntil("\r\n>> ");
  repl.Type("print('line', i) end\n");
  EXPECT_THAT(repl.ReadUntil("\r\n> "), HasSubstr("line\t1\r\nline\t2\r\n"));
}

TEST_F(ReplTest, CompletesNames) {
  Repl repl;
  repl.Type("nn.Embed\t{10, 4}\n");
  EXPECT_THAT(repl.ReadUntil("\r\n> "), HasSubstr("Embedding(10, 4)"));
}

TEST_F(ReplTest, CtrlCForgetsTheLine) {
  Repl repl;
  repl.Type("function f(\n");
  repl.ReadUntil("\r\n>> ");
  repl.Type("\003");
  repl.ReadUntil("^C\r\n> ");
  repl.Type("7\n");
  EXPECT_THAT(repl.ReadUntil("\r\n> "), HasSubstr("\r\n7\r\n"));
}

TEST_F(ReplTest, CtrlCEndsWhatRuns) {
  Repl repl;
  repl.Type("print('running') while true do end\n");
  repl.ReadUntil("running\r\n");
  repl.Type("\003");
  EXPECT_THAT(repl.ReadUntil("\r\n> "), HasSubstr("interrupted"));
  repl.Type("\004");
  EXPECT_EQ(repl.Wait(), 0);
}

TEST_F(ReplTest, TheHistoryOutlivesIt) {
  {
    Repl repl;
    repl.Type("40 + 2\n");
    repl.ReadUntil("\r\n> ");
    repl.Type("\004");
    repl.Wait();
  }
  Repl repl;
  repl.Type("\033[A\n");
  EXPECT_THAT(repl.ReadUntil("\r\n> "), HasSubstr("\r\n42\r\n"));
}

TEST_F(ReplTest, HasTheScriptsJob) {
  Repl repl({"launcher/testdata/tiny.lua"});
  EXPECT_THAT(repl.greeting, HasSubstr("the script's job"));
  repl.Type("job:plan{pipe=3}.bounds\n");
  EXPECT_THAT(repl.ReadUntil("\r\n> "), HasSubstr("{0, 3, 5, 6}"));
}

}  // namespace
}  // namespace strata::launcher
