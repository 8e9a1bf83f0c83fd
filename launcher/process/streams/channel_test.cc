#include "launcher/process/streams/channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace strata::launcher {
namespace {

struct Ends {
  explicit Ends(SocketPair pair = MakeSocketPair())
      : left(std::move(pair.parent)), right(std::move(pair.child)) {}
  Channel left;
  Channel right;
};

Value Numbered(int64_t number) { return Value::MakeMap({{"number", Value(number)}}); }

/// Receives until `count` messages have come.
std::vector<Message> ReceiveAll(Channel& channel, size_t count) {
  std::vector<Message> messages;
  while (messages.size() < count && channel.Receive(messages)) continue;
  return messages;
}

TEST(ChannelTest, CarriesMessagesBothWays) {
  Ends ends;
  const Value sent = Value::MakeMap({{"text", Value("two\nlines \"quoted\"")}, {"x", Value(0.1)}});
  EXPECT_TRUE(ends.left.Send(sent));
  EXPECT_TRUE(ends.right.Send(Numbered(7)));
  EXPECT_EQ(ReceiveAll(ends.right, 1).at(0).body, sent);
  EXPECT_EQ(ReceiveAll(ends.left, 1).at(0).body, Numbered(7));
}

TEST(ChannelTest, KeepsMessagesApartAndInOrder) {
  Ends ends;
  constexpr int kCount = 2000;
  std::thread sender([&] {
    for (int i = 0; i < kCount; ++i) ends.left.Send(Numbered(i));
  });
  const std::vector<Message> messages = ReceiveAll(ends.right, kCount);
  sender.join();
  ASSERT_EQ(messages.size(), static_cast<size_t>(kCount));
  for (int i = 0; i < kCount; ++i) EXPECT_EQ(messages[i].body, Numbered(i));
}

TEST(ChannelTest, CarriesMessagesLargerThanItsBuffers) {
  Ends ends;
  const Value sent = Value::MakeMap({{"text", Value(std::string(5'000'000, 'x'))}});
  std::thread sender([&] { ends.left.Send(sent); });
  EXPECT_EQ(ReceiveAll(ends.right, 1).at(0).body, sent);
  sender.join();
}

TEST(ChannelTest, SeveralThreadsMaySend) {
  Ends ends;
  constexpr int kEach = 500;
  std::vector<std::thread> senders;
  for (int i = 0; i < 4; ++i) {
    senders.emplace_back([&] {
      for (int k = 0; k < kEach; ++k) ends.left.Send(Numbered(k));
    });
  }
  EXPECT_EQ(ReceiveAll(ends.right, 4 * kEach).size(), 4u * kEach);
  for (std::thread& sender : senders) sender.join();
}

TEST(ChannelTest, HandsOverDescriptorsWithTheirMessage) {
  Ends ends;
  Pipe first = MakePipe(), second = MakePipe();
  ends.left.Send(Numbered(0));
  const std::array<int, 1> one = {first.write.get()};
  ends.left.Send(Numbered(1), one);
  ends.left.Send(Numbered(2));
  const std::array<int, 2> two = {second.write.get(), first.write.get()};
  ends.left.Send(Numbered(3), two);
  std::vector<Message> messages = ReceiveAll(ends.right, 4);
  EXPECT_TRUE(messages[0].fds.empty());
  EXPECT_TRUE(messages[2].fds.empty());
  ASSERT_EQ(messages[1].fds.size(), 1u);
  ASSERT_EQ(messages[3].fds.size(), 2u);
  WriteAll(messages[3].fds[0].get(), "2", "a pipe");
  char byte = 0;
  EXPECT_EQ(::read(second.read.get(), &byte, 1), 1);
  EXPECT_EQ(byte, '2');
}

/// A channel whose other end is a plain socket, for sending any bytes.
struct BareEnd {
  explicit BareEnd(SocketPair pair = MakeSocketPair())
      : channel(std::move(pair.parent)), socket(std::move(pair.child)) {}
  void Write(std::string_view bytes) { WriteAll(socket.get(), bytes, "the socket"); }
  Channel channel;
  Fd socket;
};

TEST(ChannelTest, TakesAMessageInAnyPieces) {
  const std::string bytes = "0 {\"number\":1}\n0 {\"number\":2}\n0 {\"number\":3}\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    BareEnd end;
    std::vector<Message> messages;
    for (size_t at = 0; at < bytes.size(); at += piece) {
      end.Write(std::string_view(bytes).substr(at, piece));
      EXPECT_TRUE(end.channel.Receive(messages));
    }
    ASSERT_EQ(messages.size(), 3u) << piece;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(messages[i].body, Numbered(i + 1)) << piece;
  }
}

TEST(ChannelTest, RefusesWhatIsNoMessage) {
  for (const std::string bytes :
       {"", " ", "{}", "0", "0{}", "x {}", "-1 {}", "1 {}", "18446744073709551616 {}", "0 {",
        "0 [1]", "0 7", "0 null", "0 {}{}", "0 \xff", "\x16\x03\x01", "GET / HTTP/1.1\r"}) {
    BareEnd end;
    end.Write(bytes + "\n");
    std::vector<Message> messages;
    EXPECT_THROW(end.channel.Receive(messages), WorldError) << bytes;
  }
}

TEST(ChannelTest, ShowsTheBeginningOfWhatIsNoMessage) {
  BareEnd end;
  end.Write(std::string(5000, 'x') + "\n");
  std::vector<Message> messages;
  try {
    end.channel.Receive(messages);
    FAIL();
  } catch (const WorldError& error) {
    EXPECT_EQ(std::string(error.what()),
              "expected a message, got \"" + std::string(60, 'x') + "\"...");
  }
}

TEST(ChannelTest, RefusesAMessageWithoutAnEnd) {
  ::signal(SIGPIPE, SIG_IGN);
  BareEnd end;
  std::thread sender([&] {
    const std::string bytes(1 << 20, 'x');
    try {
      for (size_t sent = 0; sent <= MessageBuffer::kLongest; sent += bytes.size()) end.Write(bytes);
    } catch (const WorldError&) {  // the receiver has closed the channel
    }
  });
  std::vector<Message> messages;
  EXPECT_THROW(while (end.channel.Receive(messages)) continue, WorldError);
  end.channel.Close();
  sender.join();
}

TEST(ChannelTest, DescriptorsThatNobodyTookAreClosed) {
  Pipe pipe = MakePipe();
  {
    Ends ends;
    const std::array<int, 1> one = {pipe.write.get()};
    ends.left.Send(Numbered(1), one);
    ReceiveAll(ends.right, 1);  // drops the message and its descriptor
  }
  pipe.write.Close();
  char byte;
  EXPECT_EQ(::read(pipe.read.get(), &byte, 1), 0) << "nobody holds the pipe any more";
}

TEST(ChannelTest, TellsWhenTheOtherEndIsGone) {
  Ends ends;
  ends.left.Send(Numbered(1));
  ends.left.Close();
  std::vector<Message> messages;
  EXPECT_TRUE(ends.right.Receive(messages));
  EXPECT_EQ(messages.size(), 1u);
  EXPECT_FALSE(ends.right.Receive(messages));
  EXPECT_FALSE(ends.right.Send(Numbered(2)));
}

}  // namespace
}  // namespace strata::launcher
