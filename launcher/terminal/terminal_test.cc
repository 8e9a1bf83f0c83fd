// Tests of lines and status on a terminal and on a pipe.
#include "launcher/terminal/terminal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "engine/base/error.h"
#include "launcher/process/child.h"
#include "launcher/terminal/progress_bar.h"
#include "launcher/terminal/pty.h"

namespace strata::launcher {
namespace {

class TerminalTest : public testing::Test {
 protected:
  void SetUp() override { ::setenv("TERM", "xterm", 1); }
};

TEST_F(TerminalTest, IntoAPipeOnlyLinesGo) {
  Pipe out = MakePipe(), err = MakePipe();
  {
    Terminal terminal(out.write.get(), err.write.get());
    EXPECT_FALSE(terminal.interactive());
    EXPECT_EQ(terminal.width(), 80);
    terminal.Line("one");
    terminal.Status("half way");
    terminal.ErrorLine("oh");
    terminal.Line("two");
  }
  EXPECT_EQ(Drain(out), "one\ntwo\n");
  EXPECT_EQ(Drain(err), "oh\n");
}

TEST_F(TerminalTest, TheStatusStaysBelowTheLines) {
  Pty pty;
  Terminal terminal(pty.program.get(), pty.program.get());
  ASSERT_TRUE(terminal.interactive());
  EXPECT_EQ(terminal.width(), 80);
  terminal.Status("10%");
  terminal.Status("20%");
  terminal.Line("a line");
  terminal.ErrorLine("a warning");
  terminal.ClearStatus();
  terminal.Line("end");
  EXPECT_EQ(pty.ReadUntil("end\r\n"),
            "\r\033[K10%\r\033[K20%"
            "\r\033[Ka line\r\n\r\033[K20%"
            "\r\033[Ka warning\r\n\r\033[K20%"
            "\r\033[Kend\r\n");
}

TEST_F(TerminalTest, TheStatusNeverWraps) {
  Pty pty;
  Terminal terminal(pty.program.get(), pty.program.get());
  terminal.Status(std::string(200, 'x') + "!");
  terminal.Line("end");
  EXPECT_EQ(pty.ReadUntil("\033[Kend"), "\r\033[K" + std::string(79, 'x') + "\r\033[Kend");
}

TEST_F(TerminalTest, ADumbTerminalGetsNoStatus) {
  ::setenv("TERM", "dumb", 1);
  Pty pty;
  EXPECT_FALSE(Terminal(pty.program.get(), pty.program.get()).interactive());
}

TEST_F(TerminalTest, HasColorsUnlessNobodyWantsThem) {
  Pty pty;
  const Terminal terminal(pty.program.get(), pty.program.get());
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(terminal.colors());
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(terminal.colors());
  ::setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(terminal.colors()) << "as no-color.org has it";
  Pipe pipe = MakePipe();
  EXPECT_FALSE(Terminal(pipe.write.get(), pipe.write.get()).colors());
}

TEST_F(TerminalTest, TheLocaleTellsWhetherItShowsUnicode) {
  ::unsetenv("LC_ALL");
  ::unsetenv("LC_CTYPE");
  ::setenv("LANG", "C", 1);
  EXPECT_FALSE(Terminal().unicode());
  ::setenv("LANG", "de_DE.utf8", 1);
  EXPECT_TRUE(Terminal().unicode());
  ::setenv("LC_ALL", "POSIX", 1);
  EXPECT_FALSE(Terminal().unicode());
}

TEST_F(TerminalTest, AFullDiskIsAnError) {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  Terminal terminal(full.get(), full.get());
  EXPECT_THROW(terminal.Line("text"), WorldError);
}

TEST(CutTest, CountsCharacters) {
  EXPECT_EQ(Cut("abc", 5), "abc");
  EXPECT_EQ(Cut("abc", 2), "ab");
  EXPECT_EQ(Cut("━━─", 2), "━━");
  EXPECT_EQ(Cut("abc", 0), "");
}

TEST(ProgressBarTest, FillsUp) {
  EXPECT_EQ(ProgressBar(0, 10, false), "[--------]");
  EXPECT_EQ(ProgressBar(0.5, 10, false), "[####----]");
  EXPECT_EQ(ProgressBar(1, 10, false), "[########]");
  EXPECT_EQ(ProgressBar(7, 10, false), "[########]");
  EXPECT_EQ(ProgressBar(-1, 10, false), "[--------]");
  EXPECT_EQ(ProgressBar(std::nan(""), 10, false), "[########]") << "0 of 0 steps";
  EXPECT_EQ(ProgressBar(std::numeric_limits<double>::infinity(), 10, false), "[########]");
  EXPECT_EQ(ProgressBar(0.5, 4, true), "━━──");
}

}  // namespace
}  // namespace strata::launcher
