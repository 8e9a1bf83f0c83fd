#include "engine/base/fd.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <fstream>
#include <future>
#include <string>

#include "engine/base/error.h"

namespace strata {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

struct Ends {
  Fd read, write;
};

Ends MakePipe() {
  std::array<int, 2> ends;
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  return {Fd(ends[0]), Fd(ends[1])};
}

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(FdTest, ClosesItself) {
  int fd;
  {
    const Ends pipe = MakePipe();
    fd = pipe.read.get();
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(FdTest, MovesAndReleases) {
  Ends pipe = MakePipe();
  const int fd = pipe.read.get();
  Fd other = std::move(pipe.read);
  EXPECT_FALSE(pipe.read.is_open());
  EXPECT_EQ(other.Release(), fd);
  EXPECT_FALSE(other.is_open());
  EXPECT_TRUE(IsOpen(fd));
  ::close(fd);
}

TEST(FdTest, AssigningClosesTheOldOne) {
  Ends pipe = MakePipe();
  const int old = pipe.read.get(), other = pipe.write.get();
  pipe.read = std::move(pipe.write);
  EXPECT_FALSE(IsOpen(old));
  EXPECT_EQ(pipe.read.get(), other);
  EXPECT_TRUE(IsOpen(other));
}

TEST(FdTest, ClosingTwiceClosesNobodyElses) {
  Ends pipe = MakePipe();
  const int fd = pipe.read.get();
  pipe.read.Close();
  const Fd taken(::open("/dev/null", O_RDONLY | O_CLOEXEC));  // the lowest free number
  EXPECT_EQ(taken.get(), fd);
  pipe.read.Close();
  EXPECT_TRUE(IsOpen(taken.get()));
}

TEST(WriteAllTest, WritesMoreThanAPipeHolds) {
  Ends pipe = MakePipe();
  std::string text(1 << 20, 'x');
  text.back() = 'y';
  auto written = std::async(std::launch::async, [&] {
    WriteAll(pipe.write.get(), text, "a pipe");
    pipe.write.Close();
  });
  std::string seen;
  std::array<char, 4096> buffer;
  for (ssize_t count; (count = ::read(pipe.read.get(), buffer.data(), buffer.size())) > 0;) {
    seen.append(buffer.data(), static_cast<size_t>(count));
  }
  written.get();
  EXPECT_EQ(seen, text);
}

TEST(WriteAllTest, AFullDiskNamesTheFile) {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.is_open());
  EXPECT_THAT(
      [&] { WriteAll(full.get(), "text", "log.jsonl"); },
      ThrowsMessage<WorldError>(HasSubstr("cannot write to log.jsonl: No space left on device")));
}

TEST(ThrowErrnoTest, SaysWhatAndWhy) {
  EXPECT_THAT(
      [] {
        errno = ENOENT;
        ThrowErrno("opening the log");
      },
      ThrowsMessage<WorldError>(HasSubstr("opening the log: No such file or directory")));
}

TEST(WriteFile, PutsItsTextInPlaceOfWhatWasThere) {
  const std::string path = ::testing::TempDir() + "/written";
  WriteFile(path, "something long");
  WriteFile(path, "short");
  CheckWritable(path);
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  EXPECT_EQ(text, "short");
}

TEST(WriteFile, NamesTheFileThatCannotBeWritten) {
  const std::string path = ::testing::TempDir() + "/no/such/folder";
  EXPECT_THAT([&] { WriteFile(path, ""); },
              ThrowsMessage<WorldError>(HasSubstr(path + ": No such file or directory")));
  EXPECT_THAT([&] { CheckWritable(path); }, ThrowsMessage<WorldError>(HasSubstr(path)));
  EXPECT_THAT([] { WriteFile("/dev/full", "text"); },
              ThrowsMessage<WorldError>(HasSubstr("/dev/full: No space left on device")));
}

TEST(PathOfDescriptor, OpensTheSameFileAgain) {
  const std::string path = ::testing::TempDir() + "/again";
  WriteFile(path, "text");
  const Fd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  WriteFile(PathOfDescriptor(file.get()), "other text");  // the first descriptor is read-only
  std::array<char, 10> text;
  ASSERT_EQ(::read(file.get(), text.data(), text.size()), 10);
  EXPECT_EQ(std::string(text.begin(), text.end()), "other text");
  EXPECT_TRUE(IsPathOfDescriptor(PathOfDescriptor(file.get())));
  EXPECT_FALSE(IsPathOfDescriptor(path));
}

/// Opens the two ends of a pseudo-terminal.
Ends MakeTerminal() {
  Fd user(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  EXPECT_EQ(::grantpt(user.get()), 0);
  EXPECT_EQ(::unlockpt(user.get()), 0);
  Fd program(::open(::ptsname(user.get()), O_RDWR | O_NOCTTY | O_CLOEXEC));
  return {std::move(user), std::move(program)};
}

TEST(ShowsColors, OnATerminalWhereNobodyWantsNone) {
  const Ends terminal = MakeTerminal(), pipe = MakePipe();
  ::setenv("TERM", "xterm", 1);
  ::unsetenv("NO_COLOR");
  EXPECT_TRUE(ShowsColors(terminal.write.get()));
  EXPECT_FALSE(ShowsColors(pipe.write.get()));
  ::setenv("NO_COLOR", "1", 1);
  EXPECT_FALSE(ShowsColors(terminal.write.get()));
  EXPECT_TRUE(IsTerminal(terminal.write.get()));
  ::setenv("NO_COLOR", "", 1);
  EXPECT_TRUE(ShowsColors(terminal.write.get())) << "as no-color.org has it";
}

TEST(ShowsColors, NotOnADumbTerminal) {
  const Ends terminal = MakeTerminal();
  ::unsetenv("NO_COLOR");
  ::setenv("TERM", "dumb", 1);
  EXPECT_FALSE(IsTerminal(terminal.write.get()));
  EXPECT_FALSE(ShowsColors(terminal.write.get()));
  ::unsetenv("TERM");
  EXPECT_FALSE(ShowsColors(terminal.write.get()));
}

}  // namespace
}  // namespace strata
