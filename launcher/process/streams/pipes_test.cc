// Tests of descriptors: exec closes them, other machines cannot connect.
#include "launcher/process/streams/pipes.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
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

}  // namespace
}  // namespace strata::launcher
