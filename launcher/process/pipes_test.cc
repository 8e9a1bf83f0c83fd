// Tests that exec closes the descriptors and fork() shares them.
#include "launcher/process/pipes.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace strata::launcher {
namespace {

TEST(FdTest, NothingSurvivesExec) {
  const Pipe pipe = MakePipe();
  const SocketPair sockets = MakeSocketPair();
  for (const Fd* fd : {&pipe.read, &pipe.write, &sockets.parent, &sockets.child}) {
    EXPECT_TRUE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC);
  }
}

TEST(MakeMemoryFileTest, IsSharedByWhoInheritsItAndHasNoName) {
  const Fd file = MakeMemoryFile();
  EXPECT_TRUE(::fcntl(file.get(), F_GETFD) & FD_CLOEXEC);
  const pid_t child = ::fork();
  if (child == 0) {
    WriteFile(PathOfDescriptor(file.get()), "hello");
    ::_exit(0);
  }
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  char text[6] = {};
  EXPECT_EQ(::pread(file.get(), text, sizeof(text), 0), 5);
  EXPECT_STREQ(text, "hello");
  struct stat status;
  ASSERT_EQ(::fstat(file.get(), &status), 0);
  EXPECT_EQ(status.st_nlink, 0u);
}

}  // namespace
}  // namespace strata::launcher
