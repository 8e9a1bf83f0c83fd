// Tests of typed keys, completion and history.
#include "launcher/terminal/line_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <clocale>
#include <cstdlib>
#include <filesystem>
#include <future>

#include "launcher/terminal/pty.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using Kind = Line::Kind;

FILE* Open(int fd, const char* mode) { return ::fdopen(::dup(fd), mode); }

TEST(PipedLinesTest, ReadsToTheEnd) {
  Pipe pipe = MakePipe();
  WriteAll(pipe.write.get(), "one\r\n\nlast", "a pipe");
  pipe.write.Close();
  FILE* in = Open(pipe.read.get(), "r");
  PipedLines lines(in);
  EXPECT_EQ(lines.Read("> ").text, "one");
  EXPECT_EQ(lines.Read("> ").text, "");
  EXPECT_EQ(lines.Read("> ").text, "last");
  EXPECT_EQ(lines.Read("> ").kind, Kind::kEnd);
  std::fclose(in);
}

/// A prompt on a pseudo terminal. Another thread reads lines; the test's thread types.
class EditedLinesTest : public testing::Test {
 protected:
  void SetUp() override {
    ::setenv("TERM", "xterm", 1);
    ::setenv("HOME", testing::TempDir().c_str(), 1);  // no .editrc
    history_ = testing::TempDir() + "/state/strata/history";
    std::filesystem::remove(history_);
    in_ = Open(pty_.program.get(), "r");
    out_ = Open(pty_.program.get(), "w");
  }
  void TearDown() override {
    lines_.reset();
    std::fclose(in_);
    std::fclose(out_);
  }

  void Start(Completer completer = [](std::string_view) { return Candidates(); }) {
    lines_ = std::make_unique<EditedLines>(history_, std::move(completer), wake_.get(), in_, out_);
  }

  /// Waits for the prompt, types these keys, and returns the line that was read.
  Line ReadWith(std::string_view keys) {
    std::future<Line> line = std::async(std::launch::async, [&] { return lines_->Read("> "); });
    pty_.ReadUntil("> ");
    pty_.Type(keys);
    return line.get();
  }

  void Wake() { ASSERT_EQ(::eventfd_write(wake_.get(), 1), 0); }

  Pty pty_;
  Fd wake_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  FILE* in_;
  FILE* out_;
  std::string history_;
  std::unique_ptr<EditedLines> lines_;
};

TEST_F(EditedLinesTest, ReadsAndEdits) {
  Start();
  EXPECT_EQ(ReadWith("print(1)\n").text, "print(1)");
  EXPECT_EQ(ReadWith("prit(2)\033[D\033[D\033[D\033[Dn\n").text, "print(2)");  // arrows to the left
  EXPECT_EQ(ReadWith("wrong\025right\n").text, "right");                       // Ctrl-U
}

TEST_F(EditedLinesTest, AnInterruptForgetsTheLine) {
  Start();
  Wake();  // arrives before the prompt, so it does not interrupt the line
  std::future<Line> line = std::async(std::launch::async, [&] { return lines_->Read("> "); });
  pty_.ReadUntil("> ");
  pty_.Type("pri");
  pty_.ReadUntil("pri");
  Wake();
  EXPECT_EQ(line.get().kind, Kind::kInterrupted);
  EXPECT_EQ(ReadWith("7\n").text, "7");
}

TEST_F(EditedLinesTest, TakesCharactersOfSeveralBytes) {
  if (std::setlocale(LC_CTYPE, "C.UTF-8") == nullptr) GTEST_SKIP() << "no UTF-8 locale";
  ::setenv("LC_ALL", "C.UTF-8", 1);
  Start();
  EXPECT_EQ(ReadWith("print('größer')\n").text, "print('größer')");
}

TEST_F(EditedLinesTest, CtrlDEnds) {
  Start();
  EXPECT_EQ(ReadWith("\004").kind, Kind::kEnd);
}

TEST_F(EditedLinesTest, ArrowsWalkThroughTheHistory) {
  Start();
  ReadWith("first\n");
  ReadWith("second\n");
  EXPECT_EQ(ReadWith("\033[A\033[A\n").text, "first");
}

TEST_F(EditedLinesTest, TheHistoryOutlivesThePrompt) {
  Start();
  ReadWith("x = 42\n");
  ReadWith("   \n");
  lines_.reset();
  Start();
  EXPECT_EQ(ReadWith("\033[A\n").text, "x = 42");
}

TEST_F(EditedLinesTest, AnInputOfSeveralLinesIsOneEntryOfTheHistory) {
  Start();
  ReadWith("before\n");
  ReadWith("for i = 1, 2 do\n");
  lines_->Continue("for i = 1, 2 do");
  ReadWith("  print(i)\n");
  lines_->Continue("for i = 1, 2 do\n  print(i)");
  ReadWith("end\n");
  lines_->Continue("");
  EXPECT_EQ(ReadWith("\033[A\n").text, "for i = 1, 2 do\n  print(i)\nend");
  lines_.reset();
  Start();
  EXPECT_EQ(ReadWith("\033[A\n").text, "for i = 1, 2 do\n  print(i)\nend");
  EXPECT_EQ(ReadWith("\033[A\033[A\n").text, "before");
}

TEST_F(EditedLinesTest, AForgottenBeginningStaysAnEntryOfItsOwn) {
  Start();
  ReadWith("f(\n");
  lines_->Continue("f(");
  ReadWith("1,\n");
  lines_->Continue("");  // Ctrl-C
  ReadWith("g\n");
  EXPECT_EQ(ReadWith("\033[A\033[A\n").text, "f(\n1,");
}

TEST_F(EditedLinesTest, AHistoryThatCannotBeKeptIsNoError) {
  history_ = "/proc/nothing/history";
  Start();
  EXPECT_EQ(ReadWith("x\n").text, "x");
}

TEST_F(EditedLinesTest, TabCompletesTheOnlyName) {
  Start([](std::string_view line) {
    EXPECT_EQ(line, "nn.Lin");
    return Candidates{3, {"Linear"}};
  });
  EXPECT_EQ(ReadWith("nn.Lin\t{}\n").text, "nn.Linear{}");
}

TEST_F(EditedLinesTest, TabGoesAsFarAsAllAgreeAndThenListsThem) {
  Start([](std::string_view) { return Candidates{3, {"Conv1d", "Conv2d"}}; });
  std::future<Line> line = std::async(std::launch::async, [&] { return lines_->Read("> "); });
  pty_.ReadUntil("> ");
  pty_.Type("nn.C\t\t");
  pty_.ReadUntil("Conv1d  Conv2d\r\n");
  pty_.ReadUntil("nn.Conv");
  pty_.Type("2d\n");
  EXPECT_EQ(line.get().text, "nn.Conv2d");
}

TEST_F(EditedLinesTest, TabWithoutCandidatesChangesNothing) {
  Start();
  EXPECT_EQ(ReadWith("zz\t\n").text, "zz");
}

TEST(HistoryPathTest, FollowsXdg) {
  ::setenv("HOME", "/home/anna", 1);
  ::unsetenv("XDG_STATE_HOME");
  EXPECT_EQ(HistoryPath(), "/home/anna/.local/state/strata/history");
  ::setenv("XDG_STATE_HOME", "/state", 1);
  EXPECT_EQ(HistoryPath(), "/state/strata/history");
  ::setenv("XDG_STATE_HOME", "", 1);
  ::unsetenv("HOME");
  EXPECT_EQ(HistoryPath(), "");
}

TEST(CommonPrefixTest, OfNoneOneAndSeveral) {
  EXPECT_EQ(CommonPrefix({}), "");
  EXPECT_EQ(CommonPrefix({"Linear"}), "Linear");
  EXPECT_EQ(CommonPrefix({"Conv1d", "Conv2d", "ConvTranspose2d"}), "Conv");
  EXPECT_EQ(CommonPrefix({"a", "b"}), "");
  EXPECT_EQ(CommonPrefix({"ab", "a"}), "a");
}

TEST(ColumnsTest, FillsDownwards) {
  EXPECT_EQ(Columns({"a", "bb", "c"}, 8), "a   c\nbb\n");
  EXPECT_EQ(Columns({"wide", "words"}, 3), "wide\nwords\n");
}

}  // namespace
}  // namespace strata::launcher
