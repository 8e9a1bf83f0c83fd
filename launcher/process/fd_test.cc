#include "launcher/process/fd.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "engine/base/error.h"

namespace strata::launcher {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

bool IsOpen(int fd) { return ::fcntl(fd, F_GETFD) >= 0; }

TEST(FdTest, ClosesItself) {
  int fd;
  {
    Pipe pipe = MakePipe();
    fd = pipe.read.get();
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(FdTest, MovesAndReleases) {
  Pipe pipe = MakePipe();
  const int fd = pipe.read.get();
  Fd other = std::move(pipe.read);
  EXPECT_FALSE(pipe.read.is_open());
  EXPECT_EQ(other.Release(), fd);
  EXPECT_TRUE(IsOpen(fd));
  ::close(fd);
}

TEST(FdTest, AssigningClosesTheOldOne) {
  Pipe pipe = MakePipe();
  const int old = pipe.read.get();
  pipe.read = std::move(pipe.write);
  EXPECT_FALSE(IsOpen(old));
}

TEST(FdTest, NothingSurvivesExec) {
  const Pipe pipe = MakePipe();
  const SocketPair sockets = MakeSocketPair();
  for (const Fd* fd : {&pipe.read, &pipe.write, &sockets.parent, &sockets.child}) {
    EXPECT_TRUE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC);
  }
}

TEST(ListenOnLoopbackTest, ListensOnLoopbackAlone) {
  const LoopbackListener listener = ListenOnLoopback();
  EXPECT_GT(listener.port, 0);
  sockaddr_in address;
  socklen_t size = sizeof(address);
  ASSERT_EQ(::getsockname(listener.socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(ntohl(address.sin_addr.s_addr), INADDR_LOOPBACK);
  const Fd client(::socket(AF_INET, SOCK_STREAM, 0));
  EXPECT_EQ(::connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
}

TEST(ListenOnLoopbackTest, EachHasItsOwnPort) {
  const LoopbackListener a = ListenOnLoopback(), b = ListenOnLoopback();
  EXPECT_NE(a.port, b.port);
}

TEST(WriteAllTest, WritesEverything) {
  Pipe pipe = MakePipe();
  WriteAll(pipe.write.get(), "hello", "a pipe");
  char buffer[8];
  EXPECT_EQ(::read(pipe.read.get(), buffer, sizeof(buffer)), 5);
}

TEST(WriteAllTest, AFullDiskNamesTheFile) {
  const Fd full(::open("/dev/full", O_WRONLY | O_CLOEXEC));
  ASSERT_TRUE(full.is_open());
  EXPECT_THAT(
      [&] { WriteAll(full.get(), "text", "log.jsonl"); },
      ThrowsMessage<WorldError>(HasSubstr("cannot write to log.jsonl: No space left on device")));
}

}  // namespace
}  // namespace strata::launcher
