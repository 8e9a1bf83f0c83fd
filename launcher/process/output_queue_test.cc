// Tests of output that nobody reads, or that is read late.
#include "launcher/process/output_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>

#include "engine/base/error.h"
#include "launcher/process/child.h"

namespace strata::launcher {
namespace {

/// Fills the pipe and returns the number of bytes that it took.
size_t Fill(const Pipe& pipe) {
  OutputQueue queue;
  queue.set_waits(false);
  queue.Write(pipe.write.get(), std::string(1 << 20, 'x'), "a pipe");
  return static_cast<size_t>(::fcntl(pipe.write.get(), F_GETPIPE_SZ));
}

TEST(OutputQueueTest, KeepsTextsInOrderUntilTheyAreTaken) {
  Pipe pipe = MakePipe();
  OutputQueue queue;
  queue.set_waits(false);
  std::string all;
  for (int i = 0; i < 30'000; ++i) {
    all += std::to_string(i) + "\n";
    queue.Write(pipe.write.get(), std::to_string(i) + "\n", "a pipe");
  }
  EXPECT_FALSE(queue.empty());
  EXPECT_FALSE(::fcntl(pipe.write.get(), F_GETFL) & O_NONBLOCK) << "the flag is the shell's too";
  std::string text;
  std::array<char, 4096> buffer;
  while (text.size() < all.size()) {
    const ssize_t count = ::read(pipe.read.get(), buffer.data(), buffer.size());
    text.append(buffer.data(), static_cast<size_t>(count));
    queue.Flush();
  }
  EXPECT_EQ(text, all);
  EXPECT_TRUE(queue.empty());
}

TEST(OutputQueueTest, InAHurryDropsWhatIsNotTakenAndWritesTheRest) {
  Pipe stuck = MakePipe(), read = MakePipe();
  const size_t bytes = Fill(stuck);
  {
    OutputQueue queue;
    queue.Hurry(0);
    queue.Write(stuck.write.get(), "never", "a pipe");
    queue.Write(read.write.get(), "cause", "a pipe");
    EXPECT_TRUE(queue.empty());
  }
  EXPECT_EQ(Drain(read), "cause");
  EXPECT_EQ(Drain(stuck), std::string(bytes, 'x'));
}

TEST(OutputQueueTest, IsFullWhenTooMuchWaits) {
  Pipe pipe = MakePipe();
  OutputQueue queue;
  queue.set_waits(false);
  queue.Write(pipe.write.get(), std::string(100'000, 'x'), "a pipe");
  EXPECT_FALSE(queue.is_full());
  queue.Write(pipe.write.get(), std::string(2 << 20, 'x'), "a pipe");
  EXPECT_TRUE(queue.is_full());
}

TEST(OutputQueueTest, AFailureNamesWhatItIs) {
  const Fd full(::open("/dev/full", O_WRONLY));
  OutputQueue queue;
  EXPECT_THROW(queue.Write(full.get(), "text", "standard output"), WorldError);
  EXPECT_TRUE(queue.empty()) << "it is not tried again";
}

TEST(OutputQueueTest, WithoutWaitingTheFirstFailureIsKept) {
  const Fd full(::open("/dev/full", O_WRONLY));
  Pipe closed = MakePipe();
  closed.read.Close();
  const sighandler_t old = ::signal(SIGPIPE, SIG_IGN);
  OutputQueue queue;
  queue.set_waits(false);
  EXPECT_EQ(queue.failure(), nullptr);
  queue.Write(closed.write.get(), "text", "standard output");
  queue.Write(full.get(), "text", "standard error");
  EXPECT_TRUE(queue.empty()) << "they are not tried again";
  ASSERT_NE(queue.failure(), nullptr);
  EXPECT_EQ(queue.failure()->what, "cannot write to standard output: Broken pipe");
  EXPECT_TRUE(queue.failure()->is_closed);
  ::signal(SIGPIPE, old);
}

TEST(OutputQueueTest, InAHurryAFailureIsNone) {
  const Fd full(::open("/dev/full", O_WRONLY));
  OutputQueue queue;
  queue.Hurry(1);
  queue.Write(full.get(), "text", "standard output");
  EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace strata::launcher
