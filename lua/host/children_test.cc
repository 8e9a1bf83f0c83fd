#include "lua/host/children.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>

#include <cerrno>
#include <set>

#include "engine/base/error.h"

namespace strata::lua {
namespace {

constexpr int kSeconds = 60;  // longer than any of these tests takes

std::string ErrorOf(int count, int seconds, const ChildsWork& work, pid_t (*fork)() = ::fork) {
  try {
    return "no error: " + InChildren(count, "the children", seconds, work, fork);
  } catch (const WorldError& error) {
    return error.what();
  }
}

std::string WaitForEver(int) {
  for (;;) ::pause();
}

bool HasChildren() { return ::waitpid(-1, nullptr, WNOHANG) >= 0 || errno != ECHILD; }

TEST(InChildren, TheFirstAnswers) {
  const std::string large(1 << 20, 'x');  // larger than a pipe's buffer
  EXPECT_EQ(InChildren(2, "the children", 0,
                       [&](int rank) { return rank == 0 ? large : std::string("nobody hears"); }),
            large);
  EXPECT_FALSE(HasChildren());
}

/// The file descriptors that a program started by exec() would inherit from this process.
std::set<int> Inherited() {
  std::set<int> inherited;
  for (int fd = 0; fd < 1024; ++fd) {
    const int flags = ::fcntl(fd, F_GETFD);
    if (flags >= 0 && !(flags & FD_CLOEXEC)) inherited.insert(fd);
  }
  return inherited;
}

TEST(InChildren, OtherProgramsHaveNoEndOfThePipe) {
  const std::set<int> before = Inherited();
  EXPECT_EQ(InChildren(1, "the children", 0,
                       [&](int) { return std::string(Inherited() == before ? "none" : "some"); }),
            "none");
}

int forks_left = 0;

pid_t ForkWhileThereAreProcesses() {
  if (forks_left-- > 0) return ::fork();
  errno = EAGAIN;
  return -1;
}

TEST(InChildren, WhereNotAllCanStartTheOthersEnd) {
  for (const int can_start : {0, 1, 2}) {
    forks_left = can_start;
    EXPECT_EQ(ErrorOf(3, kSeconds, WaitForEver, ForkWhileThereAreProcesses),
              "cannot start the children: Resource temporarily unavailable");
    EXPECT_FALSE(HasChildren()) << can_start;
  }
}

TEST(InChildren, WhoDoesNotAnswerIsEnded) {
  EXPECT_EQ(ErrorOf(2, 1, WaitForEver), "the children gave no answer within 1.00 s");
  EXPECT_FALSE(HasChildren());
}

TEST(InChildren, SaysHowTheFirstEnded) {
  EXPECT_EQ(ErrorOf(1, kSeconds, [](int) -> std::string { ::_exit(3); }),
            "the children ended without an answer");
  EXPECT_EQ(ErrorOf(1, kSeconds, [](int) { return std::string(); }),
            "the children ended without an answer");
  EXPECT_EQ(ErrorOf(1, kSeconds,
                    [](int) -> std::string {
                      ::kill(::getpid(), SIGKILL);
                      return "never";
                    }),
            "the children ended by signal 9 (Killed)");
}

}  // namespace
}  // namespace strata::lua
